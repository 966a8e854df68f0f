"""Labels, ids and parameters as users give them: which are accepted, and the errors for the rest.

The features are in ``raydt.estimators.frames``.
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import sys
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from numbers import Integral
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.encoding.columns import LARGEST_INTEGER
from raydt.errors import ConfigError, InputError
from raydt.examples import updates as fixed_point
from raydt.examples.store import objects
from raydt.examples.updates import OUT_OF_RANGE
from raydt.examples.updates import out_of_range_targets as out_of_range
from raydt.learners import learners
from raydt.messages import Message, message, message_of, quoted
from raydt.parallel import in_threads, threads_of


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


# Parameters of estimators, by scikit-learn's conventions: arguments of ``__init__``, kept as they were given.
#
# What a parameter means is written once, in the description of the learner's option.

Self = TypeVar("Self", bound="Parametrised")
C = TypeVar("C", bound=type[Any])

#: Parameters that are no options of a learner.
CATEGORICAL = (
    "categorical columns, by names and positions, or by a truth value for each column; text columns of frames always "
    "are categorical. A split separates one category from the rest"
)
N_FEATURES = (
    "number of sparse features, where rows are lists of indices, by themselves or in a frame; None: that of the frame "
    "(n_features in the metadata of its schema, or its largest index + 1), and any index up to 2**31 - 2 without one. "
    "A sparse matrix has its own"
)
N_JOBS = (
    "threads of each call; None and -1: all CPUs that this process may use; 1: only the calling one. No model depends "
    "on it or has it. The default differs from scikit-learn's, where None is 1"
)


#: Methods to which meta-estimators of scikit-learn route metadata.
_ROUTED = ("fit", "partial_fit", "predict", "predict_proba", "score")


def documented(cls: C) -> C:
    """Put the section of the parameters into the docstring of an estimator, before its notes."""
    head, notes, rest = (cls.__doc__ or "").partition("    Notes\n    -----\n")
    if not notes:  # python -OO
        return cls
    names = vars(sys.modules[cls.__module__])

    def choices(match: re.Match[str]) -> str:
        """Spell out the name of a ``Literal``."""
        hint = names.get(match[0])
        return f"{{{', '.join(map(repr, get_args(hint)))}}}" if get_origin(hint) is Literal else match[0]

    options = learners()[getattr(cls, "estimator", cls).kind].Options.model_fields
    lines = ["Parameters", "----------"]
    for field in dataclasses.fields(cls):
        if field.name in options:
            meaning = re.sub(r"\bnull\b", "None", options[field.name].description or "")
        else:
            meaning = cls.described[field.name]
        meaning = meaning.replace("warm-up", "first call")
        kind = re.sub(r"Literal\[(.*?)\]", r"{\1}", re.sub(r"\w+", choices, str(field.type))).replace(" | ", " or ")
        lines.append(f"{field.name} : {kind}, default {field.default!r}")
        lines.append(textwrap.indent(textwrap.fill(f"{meaning[0].upper()}{meaning[1:]}.", 108), "    "))
    section = textwrap.indent("\n".join(lines), "    ")
    cls.__doc__ = f"{head}{section}\n\n{notes}{rest}"
    return cls


class RequestSetter:
    """``set_fit_request`` and its like: which metadata a meta-estimator of scikit-learn passes to a method.

    A class without the method, or whose method takes no metadata, has no such attribute.
    """

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, instance: Any, owner: type[Any]) -> Callable[..., Any]:
        names = owner._metadata_of(self._method)
        if not names:
            raise AttributeError(f"{owner.__name__!r} has no attribute 'set_{self._method}_request'")

        def set_request(estimator: Any = instance, /, **requests: Any) -> Any:
            from sklearn import get_config
            from sklearn.utils.metadata_routing import UNCHANGED

            if not get_config().get("enable_metadata_routing"):
                raise RuntimeError(message("estimators.no_routing"))
            if unknown := sorted(requests.keys() - names):
                raise TypeError(message("estimators.no_metadata", method=self._method, names=unknown, valid=names))
            routing = estimator.get_metadata_routing()
            for name, alias in requests.items():
                if alias is not UNCHANGED:
                    getattr(routing, self._method).add_request(param=name, alias=alias)
            estimator._metadata_request = routing
            return estimator

        set_request.__name__ = f"set_{self._method}_request"
        return set_request


class Parametrised(ABC):
    """Base of what has its arguments of ``__init__`` as parameters, and public methods that use so many threads."""

    def __init_subclass__(cls, **named: Any) -> None:
        """Have the public methods and properties of a subclass use ``n_jobs`` threads."""
        super().__init_subclass__(**named)
        for name, member in list(vars(cls).items()):
            if not name.startswith("_") and inspect.isfunction(member):
                setattr(cls, name, in_threads(member))
            elif not name.startswith("_") and isinstance(member, property) and member.fget is not None:
                setattr(cls, name, member.getter(in_threads(member.fget)))

    set_fit_request = RequestSetter("fit")
    set_partial_fit_request = RequestSetter("partial_fit")
    set_predict_request = RequestSetter("predict")
    set_predict_proba_request = RequestSetter("predict_proba")
    set_score_request = RequestSetter("score")

    def get_metadata_routing(self) -> Any:
        """Return scikit-learn's ``MetadataRequest``: the metadata that each method takes, and what is requested."""
        from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

        if hasattr(self, "_metadata_request"):
            return get_routing_for_object(self._metadata_request)
        routing = MetadataRequest(owner=type(self).__name__)
        for method in _ROUTED:
            for name in self._metadata_of(method):
                getattr(routing, method).add_request(param=name, alias=None)
        return routing

    @classmethod
    def _metadata_of(cls, method: str) -> list[str]:
        """Return the arguments of a method that are no features or targets, for instance ``sample_weight``."""
        function = getattr(cls, method, None)
        names = () if function is None else inspect.signature(function).parameters
        return [name for name in names if name not in ("self", "X", "y")]

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self: Self, **params: Any) -> Self:
        """Set parameters: ``n_jobs`` for the calls from now on, all others for the next ``fit``."""
        self._require_settable()
        for name, value in params.items():
            if name not in self._parameter_names():
                valid = self._parameter_names()
                raise ValueError(message("estimators.invalid_parameter", name=name, estimator=str(self), valid=valid))
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        )
        return f"{type(self).__name__}({changed})"

    def _repr_html_(self) -> str:
        """Return what Jupyter shows: the diagram of scikit-learn if that is installed, else the text."""
        try:
            from sklearn.utils import estimator_html_repr
        except ImportError:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return str(estimator_html_repr(self))

    def _require_settable(self) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse to set parameters where they would be lost; nothing by default."""

    @abstractmethod
    def _threads(self) -> int | None:
        """Return the most threads that a call may use; None: as many as the calls around it."""


class Parameters(Parametrised):
    """Base of the estimators, dataclasses whose fields are parameters, written once; each names its learner."""

    kind: ClassVar[str]
    #: What the parameters are for that are no options of the learner.
    described: ClassVar[dict[str, str]] = {
        "categorical_features": CATEGORICAL,
        "n_features": N_FEATURES,
        "n_jobs": N_JOBS,
    }
    #: Options of the learner that are no parameters.
    _fixed: ClassVar[dict[str, Any]] = {}
    n_jobs: int | None

    def _options(self) -> Any:
        options = learners()[self.kind].Options
        given = {name: value for name, value in self.get_params().items() if name in options.model_fields}
        try:
            return options(kind=self.kind, **self._fixed, **given)
        except ValidationError as error:
            raise parameter_error(error, given) from error

    def _threads(self) -> int | None:
        n_jobs = self.n_jobs
        if n_jobs is None:
            return None
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
            raise ConfigError(message("estimators.n_jobs", given=n_jobs))
        return threads_of(int(n_jobs))


# Ids and subjects of examples as users give them: integers, or text and other hashable values.
#
# Invariant: a model knows an example by an integer. Ids that are integers are that themselves; of other ids each
# insertion gets the next running number, which no insertion before it had, and :class:`ExampleNames` keeps the two
# together.

Integers = Ints

#: Types of the ids, subjects and keys that a model has been given, by what messages call a value: one type of each. Of
#: models that an earlier version has saved by key there may be two.
Types = Mapping[str, tuple[str, ...]]
NO_TYPES: Types = {}


def type_of(value: Hashable) -> str:
    """Return the type of an id, a subject or a key: a number and the text of its digits are two values."""
    return "text" if isinstance(value, str) else "integer" if isinstance(value, int) else "neither integer nor text"


def types_of(values: Iterable[Hashable]) -> tuple[str, ...]:
    """Return the different types of ids, subjects or keys. O(n) steps of some nanoseconds."""
    one_of_each = {type(value): value for value in values}
    return tuple(sorted({type_of(value) for value in one_of_each.values()}))


def require_type(values: Sequence[Hashable], what: str, known: Types) -> None:
    """Refuse a value of another type than those that the model has been given, or than the first one."""
    allowed = known.get(what) or types_of(values[:1])
    if set(types_of(values)) <= set(allowed):
        return
    row = next(row for row, value in enumerate(values) if type_of(value) not in allowed)
    said = {"value": quoted(values[row]), "found": type_of(values[row]), "known": " or ".join(allowed)}
    raise InputError(message("estimators.other_type", what=what, **said), row=row)


def keys_of(given: Any, what: str, known: Types) -> list[Hashable]:
    """Return ids or subjects as plain values: one value, or several of any container; UUIDs as text.

    InputError, with the row, for a missing one, for floats, truth values, lengths of time and what has no hash, and for
    a type that the model does not know; ``what`` is what messages call a value.
    """
    keys = plain_keys(given, what)
    require_type(keys, what, known)
    return keys


def plain_keys(given: Any, what: str) -> list[Hashable]:
    """Return what :func:`keys_of` does, of whatever types."""
    values = _listed(given)
    if isinstance(values, np.ndarray) or all(isinstance(value, int | float) for value in values):
        if not isinstance(values, np.ndarray):
            _refuse_missing(values, what)
        numbers: list[Hashable] = ids_of(values, what).tolist()
        return numbers
    _refuse_missing(values, what)
    keys: list[Hashable] = []
    for row, value in enumerate(values):
        if isinstance(value, list | np.ndarray):
            raise InputError(message("estimators.id_shape", shape=(len(values), len(value))))
        key = str(value) if isinstance(value, UUID) else value
        if isinstance(key, bool | float | timedelta | np.generic) or not _has_hash(key):
            raise InputError(message("estimators.id_type", what=what, value=value), row=row)
        keys.append(key)
    return keys


def ids_of_rows(given: Any, n: int, types: Types) -> list[Hashable]:
    """Return the ids of ``n`` rows."""
    ids = keys_of(given, "id", types)
    if len(ids) != n:
        raise InputError(message("estimators.other_ids", rows=n, shape=(len(ids),)))
    return ids


def subjects_of_rows(given: Any, n: int, types: Types, before: bool | None) -> list[Hashable] | None:
    """Return the subjects of ``n`` rows, which have some if the rows ``before`` them have; None: there are none."""
    subjects = None if given is None else keys_of(given, "subject", types)
    if subjects is not None and len(subjects) != n:
        raise InputError(message("estimators.other_subjects", rows=n, subjects=len(subjects)))
    if before not in (None, subjects is not None):
        raise InputError(message("estimators.subjects_always"))
    return subjects


def require_labels(given: AnyArray, n: int) -> None:
    """Refuse labels of another number than the rows."""
    if len(given) != n:
        raise InputError(message("estimators.other_labels", rows=n, labels=len(given)))


def index_of(X: Any) -> Any:
    """Return the index of a data frame if it has a name; None if not, or if ``X`` has no index."""
    index = getattr(X, "index", None)
    names = getattr(index, "names", None) or ()
    return index if any(name is not None for name in names) else None


def columns_named(X: Any, features: Sequence[str], **given: Any) -> dict[str, str | None]:
    """Return what a state says of the columns beside the features: names of the series ``given``, by keys of a source.

    Without ``id`` among these, the index of a data frame is the ids if it has a name. No column is one of ``features``.
    """
    names: Sequence[Any] = getattr(index_of(X), "names", ())
    found = {role: getattr(values, "name", None) for role, values in given.items()}
    if given.get("id") is None:
        found["id"] = names[0] if len(names) == 1 else None
    columns: dict[str, str | None] = {
        role: name for role, name in found.items() if name and isinstance(name, str) and name not in features
    }
    return columns | ({"id_kind": "integer"} if "id" in columns else {})


def _listed(given: Any) -> AnyArray | list[Any]:
    """Return values as an array of numbers, or a list of Python's own values."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return [given.item() if isinstance(given, np.generic) else given]
    if hasattr(given, "to_pylist"):  # Arrow
        return list(given.to_pylist())
    kind = getattr(getattr(given, "dtype", None), "kind", "O")
    if kind in "iuf" and hasattr(given, "__array__"):
        return np.asarray(given)
    if hasattr(given, "to_list"):  # pandas, polars
        return list(given.to_list())
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise InputError(message("estimators.id_shape", shape=given.shape))
        given = given.astype("M8[us]") if kind == "M" else given
        return list(given) if kind == "m" else list(given.tolist())
    return [value.item() if isinstance(value, np.generic) else value for value in given]


def _refuse_missing(values: Sequence[Any], what: str) -> None:
    for row, value in enumerate(values):
        if is_missing(value):
            raise InputError(message("estimators.no_key", what=what), row=row)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class ExampleNames:
    """Ids that are not integers, by numbers of their examples; a number that a model lacks is of a deleted one."""

    def __init__(self) -> None:
        self._names: dict[int, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._names.values())

    def cut(self, n: int) -> None:
        """Forget all insertions but the first ``n``."""
        if len(self._names) > n:
            while len(self._names) > n:
                self._names.popitem()
            self._numbers = {name: number for number, name in self._names.items()}

    def add(self, numbers: Integers, names: Iterable[Hashable]) -> None:
        """Note insertions."""
        for number, name in zip(numbers.tolist(), names, strict=True):
            self._names[number] = name
            self._numbers[name] = number

    def drop(self, numbers: Integers) -> None:
        """Forget the names of deleted examples."""
        for number in numbers.tolist():
            name = self._names.pop(number)
            if self._numbers[name] == number:
                del self._numbers[name]

    def numbers_of(self, names: Sequence[Hashable]) -> tuple[Integers, Bools]:
        """Return the newest number of each name, and whether there is one."""
        found = [self._numbers.get(name) for name in names]
        known = np.array([number is not None for number in found], dtype=np.bool_)
        return np.array([number or 0 for number in found], dtype=np.int64), known

    def names_of(self, numbers: Integers) -> npt.NDArray[np.object_]:
        """Return the names of examples, shape (n,)."""
        return objects([self._names[number] for number in numbers.tolist()])
