"""Errors of the keys of any section of a config."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    "retired": ("{name} was retired", "{instead}"),
    "number_or_auto": "must be at least 1, or auto",
    "class_weight": "must be balanced, or a weight for each of some classes",
    "repeated_class": "must name each class once",
    "no_classes": "class_weight is for classes, but the labels are numbers",
    "weight_range": "{what} is {value}, but weights are 0, or from {least:g} to {most:,}",
}
