"""Labels to class codes: every label a class, or one or several labels against the rest.

Invariant: codes depend on the labels alone: order of first appearance, or under ``positive`` 1 for the positive labels
and 0 for the rest, both known before the first row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from raydt.arrays.types import Floats, Int32s
from raydt.encoding.columns import Dictionary, inexact, infinite, missing, numbers
from raydt.encoding.faults import Faults, Mask
from raydt.errors import ConfigError
from raydt.examples.targets import CODES, NUMBERS, OUT_OF_RANGE, out_of_range
from raydt.messages import message
from raydt.redaction import quoted

#: Texts that YAML reads as booleans; an unquoted ``positive: yes`` must still find the label ``"yes"``.
_TRUTH = {True: ("true", "yes", "on"), False: ("false", "no", "off")}


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return _TRUTH[value]
    if isinstance(value, float) and value.is_integer():
        return (str(int(value)),)
    return (str(value).strip().casefold(),)


def find_label(wanted: Any, labels: Sequence[Any]) -> Any:
    """Return the one label that a value written in a configuration means.

    The same value of the same type wins; else the one label that reads the same as text (``1`` finds ``"1"``, ``True``
    finds ``"yes"``). None or several are a ConfigError that lists the labels.
    """
    same = [label for label in labels if label == wanted and isinstance(label, bool) == isinstance(wanted, bool)]
    found = same or [label for label in labels if set(_texts(label)) & set(_texts(wanted))]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(quoted, list(labels)[:20])) + (", ..." if len(labels) > 20 else "")
    what = "ambiguous_label" if found else "unknown_label"
    meant = " or ".join(map(quoted, found))
    raise ConfigError(message(f"sources.{what}", wanted=wanted, found=meant, labels=shown or "none at all"))


def resolve_positive(positive: Any, counts: Mapping[Any, int]) -> list[Any]:
    """Return the labels that count as positive, given the rows of each label in order of first appearance.

    ``"majority"`` and ``"minority"`` are the most frequent and the rarest; of equals the one that appears first. A
    label that is itself called so is written as a list.
    """
    if positive in ("majority", "minority"):
        if not counts:
            raise ConfigError(message("sources.no_labels", positive=positive))
        return [(max if positive == "majority" else min)(counts, key=lambda label: counts[label])]
    wanted = positive if isinstance(positive, list) else [positive]
    return list(dict.fromkeys(find_label(value, list(counts)) for value in wanted))


class Labels:
    """Class codes of labels.

    Without resolved ``positive`` labels and the ``rest``, every label is a class, of at most ``most``; ``with_more``
    are the options of the learner that take more, for a remedy. Labels that are numbers have the same interface
    (``raydt.encoding.labels``).
    """

    dtype = CODES

    def __init__(
        self, positive: list[Any] | None = None, rest: Sequence[Any] = (), most: int | None = None, with_more: str = ""
    ) -> None:
        self.positive, self._rest, self._most = positive, list(rest), most
        self._more = f", use {with_more}" if with_more else ""
        self._seen = Dictionary()
        self._names: list[Any] = []
        if positive is not None:
            name = positive[0] if len(positive) == 1 else "|".join(map(str, positive))
            self._names = [rest[0] if len(rest) == 1 else f"not {name}", name]

    def classes(self, row: int) -> list[Any]:
        """Label of each code known before ``row``; under ``positive``, the first is the other, or ``not`` it."""
        if self.positive is not None:
            return list(self._names)
        return self._seen.values[: self._seen.known(row)][: self._most]

    def values(self) -> list[Any]:
        """Return the label of each code there is so far."""
        return self._seen.values if self.positive is None else list(self._names)

    def known(self) -> str:
        """The positive labels and the others, for messages."""
        rest = ", ".join(map(quoted, self._rest[:20])) + (", ..." if len(self._rest) > 20 else "")
        return f"{', '.join(map(quoted, self.positive or []))} (positive) and {rest or 'no others'}"

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, faults: Faults
    ) -> Int32s:
        """Return the class codes of a column, -1 where a label is missing, passed over or of one class too many.

        Rows ``wanted``, shape (n,), may have a label, others are passed over; rows ``needed`` must have one. Bad are
        rows without a label, with one that is neither positive nor among the rest, and of one class too many. Where a
        learner takes many classes, one more is the fault ``many_classes``, at which reading must end: passing over all
        rows of further labels is never meant, and rows before it, read ahead, would take long to learn.
        """
        faults.mark("no_label", name, missing(column), needed)
        y = self.encode(column, row, faults.keep(wanted))
        if self.positive is not None:
            faults.mark("other_label", name, y < 0, needed, column, known=self.known())
        elif self._most is not None and len(self._seen) > self._most:
            beyond, code = y >= self._most, "third_class" if self._most == 2 else "many_classes"
            faults.mark(code, name, beyond, needed, column, most=self._most, seen=len(self._seen), instead=self._more)
            y[beyond] = -1
        return y

    def encode(self, column: pa.Array, row: int, keep: Mask | None = None) -> Int32s:
        """Return class codes, shape (n,): -1 where missing, passed over, or neither positive nor among the rest."""
        codes = self._seen.encode(column, row, keep)
        if self.positive is not None:
            code_of = dict.fromkeys(self._rest, 0) | dict.fromkeys(self.positive, 1)
            codes = np.array([*(code_of.get(v, -1) for v in self._seen.values), -1], dtype=np.int64)[codes]
        return codes.astype(np.int32)

    def forget(self, row: int) -> None:
        """Forget the classes that first appeared in this row or later."""
        self._seen.cut(self._seen.known(row))

    def state(self, row: int | None) -> dict[str, Any]:
        """Return the labels known before ``row``."""
        if self.positive is not None:
            return {"positive": self.positive, "rest": self._rest, "names": self._names}
        return {"classes": self._seen.values[: self._seen.known(row)]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with a saved state, its resolution of ``positive`` included."""
        self.positive = state.get("positive")
        self._rest, self._names = list(state.get("rest", ())), list(state.get("names", ()))
        self._seen = Dictionary(state.get("classes", ()))


class NumericLabels:
    """Labels as they are; nothing is coded, and nothing has to be remembered."""

    dtype = NUMBERS
    positive: ClassVar[None] = None

    def classes(self, row: int) -> list[Any]:
        """Numbers have no classes."""
        return []

    def values(self) -> list[Any]:
        """Numbers have no codes."""
        return []

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, faults: Faults
    ) -> Floats:
        """Return float64 labels, shape (n,), -0.0 as 0.0 and NaN for none; arguments as of ``Labels.read``."""
        faults.mark("infinite_label", name, infinite(column), wanted)
        faults.mark("inexact_label", name, inexact(column), wanted)
        faults.mark("no_label", name, missing(column), needed)
        values = numbers(column) + 0.0
        faults.mark("label_range", name, out_of_range(values), wanted, range=OUT_OF_RANGE)
        keep = faults.keep(wanted)
        return values if keep is None else np.where(keep, values, np.nan)

    def forget(self, row: int) -> None:
        """Nothing to forget."""

    def state(self, row: int | None) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
