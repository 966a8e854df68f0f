"""How a learner wants the rows of a source to be read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from raydt.examples.targets import MOST_CLASSES

#: Newest rules by which rows of files are read (``source.rules``). A change of which rows are bad, or of what a row
#: means, is a new number; the code that reads keeps the former rules, by which a run that began with them continues and
#: is audited. 1: text ids of deleted rows are never forgotten, and FuDyADT and the sparse tree take no missing values.
#: 2: deleted ids are forgotten. 3: all learners take missing values. 4: in text, 007 and 7 are two ids, subjects, keys
#: and classes, unless the column is declared one of integers, and an integer that float64 would round is bad.
NEWEST_RULES = 4


def rules_of_format(number: int) -> int:
    """Return the rules of a run that has none on record, by the format of its states."""
    return min(number, 3)


@dataclass(frozen=True, slots=True)
class Reading:
    """Inputs and targets that a learner takes."""

    regression: bool = False  #: Labels are numbers, not names of classes.
    missing: bool = False  #: A row may lack values of features. Otherwise it is bad.
    missing_since: int = 1  #: First rules of reading (``source.rules``) under which it may.
    sparse: bool = False  #: There may be sparse features. Otherwise a column of lists is refused.
    needs_sparse: bool = False  #: There must be some.
    dense: bool = True  #: There may be others.
    #: ``classes``, ``sparse_classes``: How many classes there may be without sparse features, and with some: a row with
    #: the label of one more is bad.
    classes: int = MOST_CLASSES
    sparse_classes: int = MOST_CLASSES
    #: Categories are read as numbers that follow from their values (``raydt.encoding.columns.number_of``), and
    #: not as codes in the order of their appearance, which is history.
    by_value: bool = False
    weights: bool = False  #: Rows may have weights.
    #: Weights of classes by label as text (``raydt.examples.weights.by_label``), which multiply those of the rows.
    class_weight: tuple[tuple[str, float], ...] = ()
    #: ``without_sparse``, ``with_dense``, ``with_numbers``, ``with_classes``: Options of the same learner that take
    #: what these options do not: rows without sparse features, rows with others, labels that are numbers, and more
    #: classes (without sparse features). Empty if there are none.
    without_sparse: str = ""
    with_dense: str = ""
    with_numbers: str = ""
    with_classes: str = ""

    def under(self, rules: int) -> Reading:
        """Return what the learner took under earlier rules of reading (``source.rules``)."""
        return self if rules >= self.missing_since else replace(self, missing=False)

    def most_classes(self, *, sparse: bool) -> int:
        """How many classes there may be, with sparse features or without."""
        return self.sparse_classes if sparse else self.classes


#: Rows as most learners want them: complete, with classes.
CLASSES = Reading()
