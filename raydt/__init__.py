"""Decision trees that stay correct while training examples are inserted and deleted."""

__version__ = "0.1.0"
