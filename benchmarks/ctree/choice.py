"""The settings among which the defaults were chosen (``prequential``)."""

from ctree.prequential import choice as run

__all__ = ["run"]
