"""How a learner wants the rows of a source to be read."""

from __future__ import annotations

from dataclasses import dataclass

from raydt.examples.targets import MOST_CLASSES


@dataclass(frozen=True, slots=True)
class Reading:
    """Inputs and targets that a learner takes."""

    regression: bool = False  #: Labels are numbers, not names of classes.
    missing: bool = False  #: A row may lack values of features. Otherwise it is bad.
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

    def most_classes(self, *, sparse: bool) -> int:
        """How many classes there may be, with sparse features or without."""
        return self.sparse_classes if sparse else self.classes


#: Rows as most learners want them: complete, with classes.
CLASSES = Reading()
