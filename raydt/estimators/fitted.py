"""Common part of all fitted estimators: scikit-learn's conventions, with or without it, digest, audit, saving."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.audits.audit_report import AuditReport
from raydt.errors import InputError, ModelFileError
from raydt.estimators.atomic import AtomicCalls, Values
from raydt.estimators.frames import FrameEncoder
from raydt.estimators.index_lists import ListEncoder
from raydt.estimators.keys import ExampleNames
from raydt.estimators.parameters import Parameters
from raydt.examples.features import Features
from raydt.examples.history import history_of_live
from raydt.examples.store import ExampleStore
from raydt.examples.subjects import Subjects
from raydt.folders.arrays import save_folder
from raydt.folders.folder import Folder
from raydt.folders.lock import locked
from raydt.folders.manifest import Kind
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, Learner, Traits
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel, model_meta, state_components
from raydt.sessions.session import InProcessSession

Self = TypeVar("Self", bound="Fitted")

#: Rows of which histograms and hashes are made again within milliseconds.
_FEW_ROWS = 4096


class Fitted(Parameters, AtomicCalls):
    """Base of :class:`raydt.estimators.base.Estimator`: a session with a live model, or a model that was loaded."""

    categorical_features: Sequence[str | int] | None
    session_: InProcessSession
    #: Ids of the rows of the last ``fit`` or ``partial_fit``, int64, or objects where they are not integers; of a model
    #: loaded with its examples, all live ids, oldest first.
    row_ids_: AnyArray
    n_features_in_: int
    feature_names_in_: AnyArray  #: Only for data frames: names, dtype object.
    _fitted_options: Any
    _encoder: FrameEncoder
    #: Whether all classes were named before the first examples came.
    _declared: bool
    #: Updates so far, and the next running id.
    _seq: int
    _next_id: int
    #: Ids that are not integers, by the numbers of their examples; None where ids are integers.
    _names: ExampleNames | None
    #: Subjects of the examples; None where they have none.
    _subjects: Subjects | None
    #: Of a loaded state, ranges of running ids of rows of data frames whose index has a name, which an earlier version
    #: did not use: first, and after last.
    _numbered: list[list[int]]
    #: Of the state that was loaded, if one was: the columns that its labels and ids came from.
    _columns: dict[str, Any]
    #: Arrays of a model that was loaded without examples.
    _loaded: dict[str, AnyArray]
    _interrupted = "estimators.interrupted"

    def digest(self) -> str:
        """Digest of the live model: equal for equal streams, whatever their cut into calls."""
        with self._lock:
            self._require_fitted()
            self._require_examples()
            if "digest" not in self._known:
                self._known["digest"] = self.session_.digest()
            return str(self._known["digest"])

    def audit(self) -> AuditReport:
        """Prove the guarantee on the live model from the example store.

        What needs the past (counters, the sets on which splits were chosen) is not checked: an estimator keeps
        live examples only.
        """
        with self._lock:
            self._require_fitted()
            self._require_examples()
            state, groups = self.session_.state()
        history = history_of_live(state, groups, self._features())
        return self._learner.audit(self._fitted_options, self._features(), state, history, groups)

    def save(self, path: Any, with_examples: bool = False) -> None:
        """Write a folder that :func:`raydt.load_model` reads: to predict, or, with the examples, to continue learning.

        Raises
        ------
        InputError
            The examples are to be saved, but an id or a subject is neither an integer nor text.
        ConfigError
            Another process writes in the folder.
        """
        with self._lock:
            kind, meta, components = self._sound()._saved(with_examples)
            with locked(Folder(path)):
                save_folder(path, kind, meta, components)

    def _saved(self, with_examples: bool) -> tuple[Kind, dict[str, Any], dict[str, Any]]:
        """Return kind, meta and components of the folder to write."""
        self._require_fitted()
        categories = {name: dictionary.values for name, dictionary in self._encoder.dictionaries.items()}
        meta = model_meta(self._fitted_options, self._features(), self._classes, categories)
        meta |= {"named": self._encoder.named, "declared": self._declared}
        if not with_examples:
            return "model", meta, {"arrays": self._model()}
        self._require_examples()
        columns, stream = self._saved_keys()
        if stream:
            stream["source"] = {"categories": categories, "labels": {"classes": self._classes}}
        meta |= {name: value for name, value in (("columns", columns), ("numbered", self._numbered)) if value}
        meta |= {"config_hash": None, "source_fingerprint": None, "offset": self._seq, "next_id": self._next_id}
        components: dict[str, Any] = state_components(*self.session_.state())
        return "state", meta, components | ({"stream": stream} if stream else {})

    def _saved_keys(self) -> tuple[dict[str, str | None], dict[str, Any]]:
        """Return the columns that a state names, and its text ids and subjects as components of a stream."""
        columns, stream, store = dict(self._columns), dict[str, Any](), self._store()
        live = store.slots()
        if self._names is not None:
            codes = np.sort(store.id[live])
            ids = self._names.names_of(codes).tolist()
            if _kind_of(ids, "id") != "text":
                raise InputError(message("estimators.unsaved_ids", what="id", type="int"))
            columns |= {"id": columns.get("id") or "id", "id_kind": "text"}
            stream |= {"ids": ids, "id_codes": codes, "id_died": np.full(len(ids), -1, dtype=np.int64)}
            stream |= {"id_next": self._next_id, "id_rows": self._seq}
        if self._subjects is not None:
            self._subjects.keep(store.id[live], store.born[live])
            kind = _kind_of(self._subjects.known, "subject")
            columns |= {"subject": columns.get("subject") or "subject", "subject_kind": kind}
            stream |= self._subjects.state()
        return columns, stream

    @classmethod
    def from_saved(cls: type[Self], saved: SavedModel) -> Self:
        """Estimator restored from a state, or from a model that only predicts; written by ``save`` or by a run."""
        parameters = {name: value for name, value in saved.meta["learner"].items() if name in cls._parameter_names()}
        self = cls(**parameters)
        self._fitted_options = saved.options.model_copy(update=cls._fixed)
        categorical = saved.features.categorical_names
        self.categorical_features = categorical or None
        self._encoder = self._new_encoder(categorical)
        self._encoder.take(saved.features, saved.meta.get("named", True), saved.categories)
        self._declared = saved.meta.get("declared", True)
        self._take_classes(saved.classes)
        self._set_fitted()
        if not saved.is_state:
            self._loaded = saved.arrays
            return self
        self._open_session()
        self.session_.restore(saved.arrays, saved.groups)
        self._names, self._subjects = None, None
        self.row_ids_ = saved.arrays["id"][np.argsort(saved.arrays["born"], kind="stable")]
        self._take_keys(saved, self.row_ids_)
        self._columns, self._numbered = saved.meta.get("columns", {}), saved.meta.get("numbered", [])
        self._seq = int(saved.meta["offset"])
        self._next_id = saved.next_id
        return self

    # ------------------------------------------------------------ inside

    def _take_keys(self, saved: SavedModel, live: Ints) -> None:
        """Take text ids and subjects of a state, whose ``live`` examples have these numbers, oldest first."""
        stream = saved.components.get("stream", {})
        try:
            if "id_codes" in stream:
                ids = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True))
                self._names = ExampleNames()
                self._names.add(live, [ids[number] for number in live.tolist()])
                self.row_ids_ = self._names.names_of(live)
            if "subject_codes" in stream:
                self._subjects = Subjects()
                self._subjects.restore(stream)
                self._subjects.keep(saved.arrays["id"], saved.arrays["born"])
        except (KeyError, ValueError) as error:
            raise ModelFileError(message("models.unfit", kind="state", reason=str(error))) from error

    @abstractmethod
    def _sound(self: Self) -> Self:
        """This estimator or, if a call was broken off, one as it was before."""

    def _live_session(self) -> InProcessSession | None:
        session: InProcessSession | None = self.__dict__.get("session_")
        return session

    def _growing(self) -> Iterable[Values]:
        dictionaries = self._encoder.dictionaries.values() if "_encoder" in self.__dict__ else ()
        keys = (self.__dict__.get("_names"), self.__dict__.get("_subjects"))
        return [*dictionaries, *(one for one in keys if one is not None)]

    @property
    def _learner(self) -> Learner:
        """The learner of the fitted options; before there are any, of the estimator."""
        options = getattr(self, "_fitted_options", None)
        return learners()[self.kind if options is None else options.kind]

    @property
    def _traits(self) -> Traits:
        """Of the learner with the options of the model, or with its defaults before there is one."""
        return self._learner.traits(getattr(self, "_fitted_options", None) or self._learner.Options())

    def _new_encoder(self, categorical: Sequence[str | int] | None) -> FrameEncoder:
        reading = self._traits.reading
        encoder = ListEncoder if reading.needs_sparse else FrameEncoder
        return encoder(categorical, self._fitted_options.feature_groups, reading)

    def _set_fitted(self) -> None:
        features = self._features()
        self._known: dict[str, Any] = {}  # predictor and digest of the model as it is, once they were needed
        self.n_features_in_ = len(features)
        self.__dict__.pop("feature_names_in_", None)
        if self._encoder.named:
            sparse = (features.sparse_column,) if features.sparse else ()
            self.feature_names_in_ = np.array(features.names + sparse, dtype=object)

    def _open_session(self) -> None:
        plan = NOTHING_DIVIDED
        self.session_ = InProcessSession(self._learner, self._fitted_options, self._features(), 1, plan)

    def _rest(self) -> None:
        """Use less memory until the next call, if it is soon made again: a model of one key may wait for long."""
        if "session_" in self.__dict__ and self._store().live <= _FEW_ROWS:
            self.session_.rest()

    def _trim(self) -> None:
        """Use as little memory as can be until the next call, which may not come for long."""
        if "session_" in self.__dict__:
            with self._lock:  # somebody may predict
                self._known.pop("predictor", None)
                self.session_.trim()

    def _store(self) -> ExampleStore:
        return self.session_.coordinator.store

    def _features(self) -> Features:
        assert self._encoder.features is not None
        return self._encoder.features

    def _model(self) -> dict[str, AnyArray]:
        loaded: dict[str, AnyArray] | None = getattr(self, "_loaded", None)
        return self.session_.model() if loaded is None else loaded

    def _predictor(self) -> Any:
        with self._lock:
            self._require_whole()
            if "predictor" not in self._known:
                options, features = self._fitted_options, self._features()
                self._known["predictor"] = self._learner.predictor(options, features, self._model())
            return self._known["predictor"]

    def _require_fitted(self) -> None:
        self._require_whole()
        if self.__sklearn_is_fitted__():
            return
        said = message("estimators.not_fitted", estimator=type(self).__name__)
        try:
            from sklearn.exceptions import NotFittedError
        except ImportError:
            raise ValueError(said) from None
        raise NotFittedError(said)

    def _require_examples(self) -> None:
        if hasattr(self, "_loaded"):
            raise ModelFileError(message("estimators.no_rows"))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "session_") or hasattr(self, "_loaded")

    def _rows(self, X: Any, *, known: bool = False) -> tuple[Floats, dict[str, SparseRows]]:
        """Rows to predict, and their sparse features as a keyword of predictors, if there are some."""
        self._require_fitted()
        rows, sparse = self._encoder.encode(X, type(self).__name__, known=known)
        return rows, {} if sparse is None else {"sparse": sparse}

    # ------------------------------------------------------------ what y is

    @property
    @abstractmethod
    def _classes(self) -> list[Any]:
        """Labels in the order of their codes, as plain values; empty where they are numbers."""

    @abstractmethod
    def _take_classes(self, classes: list[Any]) -> None:
        """Go on with the classes of a saved model."""


def _kind_of(values: Sequence[Any], what: str) -> str:
    """Return ``text`` or ``integer``, what all values are; InputError for others, and for both."""
    kinds = {"text" if isinstance(value, str) else "integer" if isinstance(value, int) else "" for value in values}
    if "" in kinds or len(kinds) > 1:
        other = next((value for value in values if not isinstance(value, str)), None)
        raise InputError(message("estimators.unsaved_ids", what=what, type=type(other).__name__))
    return kinds.pop() if kinds else "text"
