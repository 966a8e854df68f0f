"""After the last update: summary, report and result."""
