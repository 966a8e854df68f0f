"""Jobs by key: a model for each value of a key, in this process or on Ray."""
