"""Labels, ids and parameters as users give them: which are accepted, and the errors for the rest.

The features are in ``raydt.estimators.frames``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.encoding.columns import LARGEST_INTEGER
from raydt.errors import ConfigError, InputError
from raydt.examples import weights as fixed_point
from raydt.examples.targets import OUT_OF_RANGE, out_of_range
from raydt.messages import Message, message, message_of


def _one_column(y: Any) -> AnyArray:
    """``y`` as an array of shape (n,)."""
    given = np.asarray(y)
    if given.ndim == 2 and given.shape[1] == 1:
        _warn_column()
        given = given[:, 0]
    if given.ndim != 1:
        raise ValueError(message("estimators.label_shape", shape=given.shape))
    return given


def labels_of(y: Any) -> AnyArray:
    """One label per row, shape (n,): text, or booleans, integers of 64 bits and whole numbers. All can be saved."""
    if y is None:
        raise ValueError(message("estimators.no_labels"))
    labels = _one_column(y)
    # NumPy turns NaN among strings into a string and rounds large integers, so a list is looked at itself.
    listed = isinstance(y, list | tuple)
    if labels.dtype.kind == "U" and len(labels) and not listed:  # which can hold nothing else, and no NUL at the end
        return labels
    if labels.dtype.kind in "OU" and text_column(y if listed else labels) is not None:
        return labels
    given = y if listed else labels.tolist() if labels.dtype.kind == "O" else []
    if labels.dtype.kind in "OU":
        for row, label in enumerate(given):
            if is_missing(label):
                raise InputError(message("estimators.unusable_label", what="missing values"), row=row)
            if isinstance(label, str) != isinstance(given[0], str):
                raise InputError(message("estimators.mixed_labels", first=given[0], label=label), row=row)
            if isinstance(label, str) and label.endswith("\0"):
                raise InputError(message("estimators.nul", label=label), row=row)
        if given and isinstance(given[0], str):
            return labels
        with suppress(ValueError):  # tuples of different lengths
            labels = np.array(labels.tolist())
    kind, size = labels.dtype.kind, labels.dtype.itemsize
    if kind == "f" and not np.isfinite(labels).all():
        raise InputError(message("estimators.unusable_label", what="NaN or infinity"))
    if kind == "f" and (labels != np.floor(labels)).any():
        raise ValueError(message("estimators.label_type", what="continuous"))
    rounded = kind == "f" and any(isinstance(label, int) and abs(label) > 2**53 for label in given)
    if kind not in "biuf" or size > 8 or labels.ndim > 1 or rounded or (kind == "u" and (labels >= 2**63).any()):
        what = type(given[0]).__name__ if given else labels.dtype.name
        raise InputError(message("estimators.label_type", what=what))
    return labels


def text_column(labels: Any) -> pa.Array | None:
    """Labels as an Arrow column, if there are some, all are text, and none ends in NUL."""
    try:
        column = pa.array(labels)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    usable = isinstance(column, pa.Array) and pa.types.is_string(column.type) and len(column) and not column.null_count
    return column if usable and not pc.any(pc.ends_with(column, "\0")).as_py() else None


def distinct_labels(labels: AnyArray) -> AnyArray:
    """Return the different labels, sorted."""
    column = text_column(labels) if labels.dtype.kind == "O" else None
    if column is None:
        return np.unique(labels)
    return np.array(sorted(column.unique().to_pylist()), dtype=np.object_)


def numbers_of(y: Any) -> Floats:
    """One number per row as float64, shape (n,), -0.0 as 0.0."""
    if y is None:
        raise ValueError(message("estimators.no_labels"))
    given = _one_column(y)
    if given.dtype.kind == "c":
        raise ValueError(message("estimators.complex", what="y"))
    if given.dtype.kind in "mM":
        raise InputError(message("estimators.time_labels"))
    # NumPy turns numbers beside a text into texts, so a list is looked at itself.
    values = () if given.dtype.kind not in "OUS" else y if isinstance(y, list | tuple) else given.tolist()
    for row, value in enumerate(values):
        if isinstance(value, str | bytes):
            raise InputError(message("estimators.text_label", value=value), row=row)
    try:
        numbers = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(message("estimators.no_numbers", reason=str(error))) from error
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argmax(bad))
        what = "NaN" if np.isnan(numbers[row]) else "infinity or a value too large for dtype('float64')"
        raise InputError(message("estimators.unusable_label", what=what), row=row)
    if (bad := out_of_range(numbers)).any():
        row = int(np.argmax(bad))
        raise InputError(message("estimators.label_range", value=float(numbers[row]), range=OUT_OF_RANGE), row=row)
    numbers += 0.0
    return numbers


def weights_of(sample_weight: Any, rows: int) -> fixed_point.Weights:
    """Weights of rows in units, shape (rows,); a number stands for all of them."""
    given = np.asarray(sample_weight)
    if given.dtype.kind not in "biufO":
        raise ValueError(message("estimators.weight_type", what=given.dtype.name))
    try:
        weights = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(message("estimators.weight_type", what=str(error))) from error
    weights = np.full(rows, weights) if weights.ndim == 0 else weights
    if weights.shape != (rows,):
        raise ValueError(message("estimators.weight_shape", shape=weights.shape, rows=rows))
    if (bad := fixed_point.out_of_range(weights)).any():
        row = int(np.argmax(bad))
        least, most = 1 / fixed_point.UNIT, fixed_point.MOST >> fixed_point.BITS
        said = message("estimators.weight_range", value=weights[row].item(), least=least, most=most)
        raise InputError(said, row=row)
    return fixed_point.fixed(weights)


def require_some_weight(sample_weight: Any) -> None:
    """Raise ValueError if there are weights and all of them are zero."""
    given = np.asarray(1.0 if sample_weight is None else sample_weight)
    if given.dtype.kind in "biuf" and given.size and not given.any():
        raise ValueError(message("estimators.zero_weights"))


def is_missing(label: Any) -> bool:
    """Return True for None, NaN and what pandas has in place of a value."""
    return (
        label is None or (isinstance(label, float) and label != label) or type(label).__name__ in ("NAType", "NaTType")
    )


def ids_of(ids: Any, what: str = "id") -> Ints:
    """Ids as int64, shape (n,): one or several integers, or floats that are whole and that no other id rounds to."""
    given = np.atleast_1d(np.asarray(ids))
    if given.ndim != 1:
        raise InputError(message("estimators.id_shape", shape=given.shape))
    kind = given.dtype.kind
    exact = 2 ** (np.finfo(given.dtype).nmant + 1) if kind == "f" else LARGEST_INTEGER
    times = kind in "mM"  # which are integers in a list
    sound = kind == "i" or (kind == "u" and bool((given < 2**63).all()))
    if kind == "f" and given.dtype.itemsize <= 8:
        sound = bool(((given == np.floor(given)) & (np.abs(given) < exact)).all())
    for row, value in enumerate(() if sound else given.tolist()):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < exact)
        if isinstance(value, bool) or times or not whole or not -(2**63) <= value < 2**63:
            raise InputError(message("estimators.id_type", what=what, value=value), row=row)
    return given.astype(np.int64)


def warn(said: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that has called this package, however deep in it the reason is found."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in ("raydt", "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(said, category, stacklevel=level)


def names_of(categorical: Sequence[Any] | None) -> Sequence[Any]:
    """Features that ``categorical_features`` names; a string alone would name its letters."""
    if isinstance(categorical, str):
        raise ConfigError(message("estimators.string", given=categorical))
    return () if categorical is None else categorical


def columns_of(categorical: Sequence[Any] | None, columns: Sequence[str]) -> set[Any]:
    """Return the columns that ``categorical_features`` names, by position, by name or as a mask."""
    given, n = names_of(categorical), len(columns)
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise InputError(message("estimators.dimensions", shape=given.shape))
    flags = sum(isinstance(column, bool | np.bool_) for column in given)
    if flags and flags == len(given):
        if flags != n:
            raise InputError(message("estimators.mask_length", flags=flags, columns=n))
        return {name for name, chosen in zip(columns, given, strict=True) if chosen}
    found = set()
    for column in given:
        if isinstance(column, bool | np.bool_):
            raise InputError(message("estimators.mixed_mask", flag=column))
        if isinstance(column, int | np.integer) and not 0 <= column < n:
            raise InputError(message("estimators.no_position", position=int(column), columns=n, last=n - 1))
        found.add(columns[int(column)] if isinstance(column, int | np.integer) else column)
    return found


def parameter_error(error: ValidationError, given: dict[str, Any]) -> ConfigError:
    """All that is wrong with the parameters, each with its value and what is allowed."""
    problems: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False):
        subject = f"{detail['loc'][0]}={given.get(str(detail['loc'][0]))!r} " if detail["loc"] else ""
        text = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
        problems.setdefault(subject, []).append(text)
    shown, first = "; ".join(subject + ", or ".join(texts) for subject, texts in problems.items()), message_of(error)
    if first is None:
        return ConfigError(message("estimators.parameters", problems=shown))
    return ConfigError(Message(shown, "", first.id, first.parameters))


def _warn_column() -> None:
    try:
        from sklearn.exceptions import DataConversionWarning as Category
    except ImportError:
        Category = UserWarning
    warn(message("estimators.column_vector"), Category)
