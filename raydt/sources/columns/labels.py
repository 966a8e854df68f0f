"""Labels to class codes: every label a class, or one or several labels against the rest.

Invariant: codes depend on the labels alone: order of first appearance, or under ``positive`` 1 for the positive labels
and 0 for the rest, both known before the first row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.errors import OR_SKIP, ConfigError
from raydt.examples.targets import CODES
from raydt.redaction import quoted
from raydt.sources.columns.bad_rows import BadRows, Mask
from raydt.sources.columns.encoding import Dictionary, missing

#: What to do about a row without a label.
NO_LABEL = f"Give the row a label{OR_SKIP}"

#: What to do about a third class.
_ONE_CLASS = "Say with source.positive which labels make one class"


def _too_many() -> str:
    from raydt.learners import for_numbers  # needed for the message only: compiled kernels are imported with it

    return (
        f"Name another column in source.label if these are ids, learn them as numbers ({for_numbers()}), or say with "
        "source.positive which labels make one class"
    )


#: Texts that YAML reads as booleans; an unquoted ``positive: yes`` must still find the label ``"yes"``.
_TRUTH = {True: ("true", "yes", "on"), False: ("false", "no", "off")}


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return _TRUTH[value]
    if isinstance(value, float) and value.is_integer():
        return (str(int(value)),)
    return (str(value).strip().casefold(),)


def find_label(wanted: Any, labels: Sequence[Any]) -> Any:
    """The one label that a value written in a configuration means.

    The same value of the same type wins; else the one label that reads the same as text (``1`` finds ``"1"``,
    ``True`` finds ``"yes"``), if there is exactly one.

    Raises
    ------
    ConfigError
        No label is meant, or several; the message lists the labels.
    """
    same = [label for label in labels if label == wanted and isinstance(label, bool) == isinstance(wanted, bool)]
    found = same or [label for label in labels if set(_texts(label)) & set(_texts(wanted))]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(quoted, list(labels)[:20])) + (", ..." if len(labels) > 20 else "")
    problem = "is not a label of the source" if not found else f"could mean {' or '.join(map(quoted, found))}"
    raise ConfigError(f"source.positive: {wanted!r} {problem}; the labels are {shown or 'none at all'}")


def resolve_positive(positive: Any, counts: Mapping[Any, int]) -> list[Any]:
    """Labels that count as positive.

    Parameters
    ----------
    positive : label, list of labels, ``"majority"`` or ``"minority"``
        The most frequent label, or the rarest; of equals the one that appears first. A label that is itself called
        so is written as a list.
    counts : mapping of label to number of rows
        In order of first appearance.
    """
    if positive in ("majority", "minority"):
        if not counts:
            raise ConfigError(f"source.positive: {positive} needs at least one row with a label")
        return [(max if positive == "majority" else min)(counts, key=lambda label: counts[label])]
    wanted = positive if isinstance(positive, list) else [positive]
    return list(dict.fromkeys(find_label(value, list(counts)) for value in wanted))


class Labels:
    """Class codes of labels.

    Parameters
    ----------
    positive : list, optional
        Resolved positive labels; without it every label is a class.
    rest : list, optional
        All other labels.
    most : int, optional
        How many classes there may be.
    with_more : str
        Options of the learner with which there may be more, for a remedy; empty if there are none.

    Notes
    -----
    Labels that are numbers have the same interface (``raydt.sources.columns.numeric_labels``).
    """

    dtype = CODES

    def __init__(
        self,
        positive: list[Any] | None = None,
        rest: Sequence[Any] = (),
        most: int | None = None,
        with_more: str = "",
    ) -> None:
        self.positive, self._rest, self._most = positive, list(rest), most
        self._more = f", use {with_more}" if with_more else ""
        self._seen = Dictionary()
        self._names: list[Any] = []
        if positive is not None:
            name = positive[0] if len(positive) == 1 else "|".join(map(str, positive))
            self._names = [rest[0] if len(rest) == 1 else f"not {name}", name]

    @property
    def classes(self) -> list[Any]:
        """Label of each code. Under ``positive``, class 0 is the other label, or ``not`` the positive one."""
        return list(self._names) if self.positive is not None else list(self._seen.values[: self._most])

    def known(self) -> str:
        """The positive labels and the others, for messages."""
        rest = ", ".join(map(quoted, self._rest[:20])) + (", ..." if len(self._rest) > 20 else "")
        return f"{', '.join(map(quoted, self.positive or []))} (positive) and {rest or 'no others'}"

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, bad: BadRows
    ) -> npt.NDArray[np.int32]:
        """Class codes of a column, and which of its rows are bad.

        Parameters
        ----------
        column : pa.Array, n values
        name : str
            The column, for messages.
        row : int
            Row number of the first value.
        wanted : ndarray of bool, shape (n,), optional
            Rows that may have a label; None for all. Others are passed over.
        needed : ndarray of bool, shape (n,), optional
            Rows that must have one; None for all.
        bad : BadRows
            Receives those without a label, those whose label is neither positive nor among the rest, and those of one
            class too many.

        Returns
        -------
        ndarray of int32, shape (n,)
            -1 where a label is missing or passed over, or of one class too many.

        Raises
        ------
        InputError
            There are more classes than any learner takes. Not a bad row: passing over all rows of further labels is
            never meant, and rows before it, read ahead, would take long to learn.
        """
        bad.add_mask(missing(column), needed, name, "no label", NO_LABEL)
        y = self.encode(column, row, bad.keep(wanted))
        if self.positive is not None:
            keep = bad.keep(needed)
            for position in np.flatnonzero(y < 0 if keep is None else (y < 0) & keep).tolist():
                problem = f"label {quoted(column[position].as_py())} is neither positive nor one of the others"
                bad.add([position], name, problem, f"Known are {self.known()}")
        elif self._most is not None and len(self._seen) > self._most:
            keep, beyond = bad.keep(needed), y >= self._most
            for position in np.flatnonzero(beyond if keep is None else beyond & keep).tolist():
                label = quoted(column[position].as_py())
                problem = f"label {label} is of a class beyond the {self._most:,} that this learner takes"
                if self._most > 2:
                    known = f"{problem}: the rows read so far have {len(self._seen):,} different labels"
                    bad.add([position], name, known, _too_many())
                    raise bad[position]
                bad.add([position], name, problem, f"{_ONE_CLASS}{self._more}{OR_SKIP}")
            y[beyond] = -1
        return y

    def encode(self, column: pa.Array, row: int, keep: Mask | None = None) -> npt.NDArray[np.int32]:
        """Class codes, int32, shape (n,).

        -1 where missing or passed over (see :meth:`Dictionary.encode`), and of a label that is neither positive nor
        among the rest.
        """
        codes = self._seen.encode(column, row, keep)
        if self.positive is not None:
            code_of = dict.fromkeys(self._rest, 0) | dict.fromkeys(self.positive, 1)
            codes = np.array([*(code_of.get(v, -1) for v in self._seen.values), -1], dtype=np.int64)[codes]
        return codes.astype(np.int32)

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
