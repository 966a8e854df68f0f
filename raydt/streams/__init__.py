"""In which order examples are inserted and deleted: stream models over a source."""
