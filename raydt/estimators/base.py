"""What all estimators share: scikit-learn's conventions, stable ids, deletion, audit, saving.

An estimator is a session in this process. scikit-learn is not needed to use it; where it is installed, its tags,
``clone`` and errors work.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from raydt.audit import AuditReport, history_of_live
from raydt.encoding import Dictionary
from raydt.errors import InputError, ModelFileError, UpdateError
from raydt.estimators.arguments import ids_of, labels_of, parameter_error
from raydt.estimators.frames import FrameEncoder
from raydt.example_store import ExampleStore
from raydt.features import Features
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.persistence import save_folder
from raydt.receipt import COPIES_OF_AN_ESTIMATOR, Receipt, apply_with_receipt
from raydt.saved_model import SavedModel, model_meta, state_components
from raydt.session import InProcessSession
from raydt.updates import DELETE, DUPLICATE_ID, INSERT, REFUSALS, UNKNOWN_ID, UpdateBatch, running_ids

Self = TypeVar("Self", bound="Estimator")


class Estimator:
    """Base of the classifiers; a subclass names its learner and its options."""

    kind: ClassVar[str]
    #: Parameters of ``__init__`` that are not options of the learner.
    _own: ClassVar[tuple[str, ...]] = ("categorical_features",)
    categorical_features: Sequence[str | int] | None
    #: Of the state that was loaded, if one was: the columns that its labels and ids came from.
    _columns: dict[str, Any]
    #: Arrays of a model that was loaded without examples.
    _loaded: dict[str, npt.NDArray[Any]]

    # ------------------------------------------------------------ parameters

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self: Self, **params: Any) -> Self:
        """Set parameters; takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self._parameter_names():
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. "
                    f"Valid parameters are: {self._parameter_names()!r}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = ", ".join(
            f"{name}={value!r}" for name, value in self.get_params().items() if value is not defaults[name].default
        )
        return f"{type(self).__name__}({changed})"

    def _options(self) -> Any:
        given = {name: value for name, value in self.get_params().items() if name not in self._own}
        try:
            return learners()[self.kind].Options(**given)
        except ValidationError as error:
            raise parameter_error(error, given) from error

    # ------------------------------------------------------------ learning

    def fit(self: Self, X: Any, y: Any, *, ids: Any = None) -> Self:
        """Forget everything and build the model at once from (X, y); after an error the old model is still there.

        Parameters
        ----------
        X : array-like, data frame or Arrow table, shape (n, d)
        y : array-like, shape (n,)
        ids : array-like of int, shape (n,), optional
            Stable ids; running integers by default, returned in ``row_ids_``.

        Raises
        ------
        ConfigError
            A parameter has a value that is not allowed.
        InputError
            NaN, infinite or missing values, ids that are no integers or given twice, lengths that differ.
        """
        return self._begin(X, y, None, ids, warmup=True)

    def partial_fit(self: Self, X: Any, y: Any, classes: Any = None, *, ids: Any = None) -> Self:
        """Insert examples; all of them or, if an error is raised, none.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will come, on the first call. Without it, unseen labels are added as they come.
        """
        if not self.__sklearn_is_fitted__():
            return self._begin(X, y, classes, ids, warmup=False)
        self._require_examples()
        return self._insert(X, y, ids, warmup=False)

    def forget(self, ids: Any, *, digests: bool = True) -> Receipt:
        """Delete examples by id; all of them or, if an error is raised, none.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
        digests : bool
            Whether the receipt has digests. One takes O(n log n) for n live examples, whatever m is: 0.1 s for a
            million. A chain of calls needs one per call, as the digest after one is that before the next.

        Raises
        ------
        UpdateError
            An id is not live, or given twice.
        InputError
            The examples came from a state whose ids are text.
        """
        self._require_fitted()
        self._require_examples()
        self._refuse_text_ids("delete by value with forget_examples")
        key = ids_of(ids)
        self._refuse(self._store().find(key) < 0, key, UNKNOWN_ID)
        self._refuse_repeated(key)
        before = self.digest() if digests else None
        nothing = np.empty((0, self.n_features_in_))
        batch = self._next_batch(np.full(len(key), DELETE, dtype=np.int8), key, nothing, np.empty(0, dtype=np.int32))
        receipt = apply_with_receipt(
            self.session_,
            batch,
            self.classes_,
            copies=COPIES_OF_AN_ESTIMATOR,
            digest_before=before,
            digests=digests,
        )
        self._advance(batch)
        if digests:
            self._known["digest"] = receipt.digest_after
        return receipt

    # ------------------------------------------------------------ using

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels, shape (n,)."""
        self._require_fitted()
        codes = self._predictor().predict(self._encoder.encode(X, type(self).__name__, grow=False))
        labels: npt.NDArray[Any] = self.classes_[codes]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Shares of the classes, shape (n, len(classes_))."""
        self._require_fitted()
        rows = self._encoder.encode(X, type(self).__name__, grow=False)
        shares: npt.NDArray[np.float64] = self._predictor().predict_proba(rows, len(self.classes_))
        return shares

    def score(self, X: Any, y: Any) -> float:
        """Accuracy."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def digest(self) -> str:
        """Digest of the live model: equal for equal streams, whatever their cut into calls."""
        self._require_fitted()
        self._require_examples()
        if "digest" not in self._known:
            self._known["digest"] = self.session_.digest()
        digest: str = self._known["digest"]
        return digest

    def audit(self) -> AuditReport:
        """Prove the guarantee on the live model from the example store.

        What needs the past (counters, the sets on which splits were chosen) is not checked: an estimator keeps
        live examples only.
        """
        self._require_fitted()
        self._require_examples()
        state, groups = self.session_.state()
        history = history_of_live(state, groups)
        return learners()[self.kind].audit(self._fitted_options, self._features(), state, history)

    def save(self, path: Any, with_examples: bool = False) -> None:
        """Write a folder that :func:`raydt.load_model` reads: to predict, or, with the examples, to go on.

        Raises
        ------
        InputError
            The examples are to be saved, but came from a state whose ids are text.
        """
        self._require_fitted()
        categories = {name: dictionary.values for name, dictionary in self._encoder.dictionaries.items()}
        meta = model_meta(self._fitted_options, self._features(), self.classes_.tolist(), categories)
        meta |= {"named": self._encoder.named, "declared": self._declared}
        if not with_examples:
            save_folder(path, "model", meta, {"arrays": self._model()})
            return
        self._require_examples()
        self._refuse_text_ids("save without the examples")
        meta |= {"columns": self._columns} if self._columns else {}
        meta |= {"config_hash": None, "source_fingerprint": None, "offset": self._seq, "next_id": self._next_id}
        save_folder(path, "state", meta, state_components(*self.session_.state()))

    @classmethod
    def from_saved(cls: type[Self], saved: SavedModel) -> Self:
        """An estimator that goes on from a state, or predicts with a model; written by ``save`` or by a run."""
        parameters = {name: value for name, value in saved.meta["learner"].items() if name in cls._parameter_names()}
        self = cls(**parameters)
        self._fitted_options = saved.options
        names, kinds = saved.features.names, saved.features.categorical
        categorical = [name for name, kind in zip(names, kinds, strict=True) if kind]
        self.categorical_features = categorical or None
        self._encoder = FrameEncoder(categorical, saved.options.feature_groups)
        self._encoder.features, self._encoder.named = saved.features, saved.meta.get("named", True)
        self._encoder.dictionaries = {name: Dictionary(saved.categories.get(name, ())) for name in categorical}
        self._declared = saved.meta.get("declared", True)
        self._set_fitted(np.array(saved.classes))
        if not saved.is_state:
            self._loaded = saved.arrays
            return self
        self._open_session()
        self.session_.restore(saved.arrays, saved.groups)
        self.row_ids_ = saved.arrays["id"][np.argsort(saved.arrays["born"], kind="stable")]
        self._columns = saved.meta.get("columns", {})
        self._seq = int(saved.meta["offset"])
        self._next_id = saved.next_id
        return self

    # ------------------------------------------------------------ inside

    def _begin(self: Self, X: Any, y: Any, classes: Any, ids: Any, warmup: bool) -> Self:
        """Replace the model by a new one; on an error nothing changes, since a shallow copy does the work."""
        new = copy.copy(self)
        new._start(X, y, classes)
        new._insert(X, y, ids, warmup)
        self.__dict__ = new.__dict__
        return self

    def _start(self, X: Any, y: Any, classes: Any) -> None:
        options = self._options()
        encoder = FrameEncoder(self.categorical_features, options.feature_groups)
        encoder.learn(X)
        labels = np.unique(labels_of(y) if classes is None else labels_of(classes))
        self.__dict__.pop("_loaded", None)
        self._fitted_options, self._encoder, self._declared = options, encoder, classes is not None
        self._seq, self._next_id, self._columns = 0, 0, {}
        self._set_fitted(labels)
        self._open_session()

    def _set_fitted(self, classes: npt.NDArray[Any]) -> None:
        features = self._features()
        self._known: dict[str, Any] = {}  # predictor and digest of the model as it is, once they were needed
        self.classes_ = classes
        self.n_features_in_ = len(features)
        self.__dict__.pop("feature_names_in_", None)
        if self._encoder.named:
            self.feature_names_in_ = np.array(features.names, dtype=object)

    def _open_session(self) -> None:
        plan = WorkPlan(local_work_limit=2**62)
        self.session_ = InProcessSession(learners()[self.kind], self._fitted_options, self._features(), 1, plan)

    def _insert(self: Self, X: Any, y: Any, ids: Any, warmup: bool) -> Self:
        labels = labels_of(y)
        with self._encoder.undoing():
            rows = self._encoder.encode(X, type(self).__name__, grow=True)
            if len(rows) != len(labels):
                raise InputError(f"X has {len(rows)} rows and y has {len(labels)}")
            if ids is None:
                key = running_ids(self._next_id, len(rows))
            else:
                key = ids_of(ids)
                if key.shape != (len(rows),):
                    raise InputError(f"X has {len(rows)} rows and ids has shape {key.shape}")
            self._refuse_repeated(key)
            self._refuse(self._store().find(key) >= 0, key, DUPLICATE_ID)
            codes = self._codes(labels)  # the last that can be refused
        op = np.full(len(rows), INSERT, dtype=np.int8)
        batch = self._next_batch(op, key, rows, codes, len(rows) if warmup else 0)
        self.session_.apply(batch)
        self._advance(batch)
        self._next_id = max(self._next_id, int(key.max(initial=-1)) + 1)
        self.row_ids_ = key
        return self

    def _codes(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Codes of labels; unseen ones become classes, unless all classes were declared."""
        known = {label: code for code, label in enumerate(self.classes_.tolist())}
        first = labels[:1].tolist()
        if known and first and isinstance(first[0], str) != isinstance(next(iter(known)), str):
            raise InputError(
                f"label {first[0]!r} is of another kind than the classes {list(known)}",
                remedy="Use either numbers or strings for all labels",
            )
        new = [label for label in np.unique(labels).tolist() if label not in known]
        if new:
            if self._declared:
                raise InputError(f"label {new[0]!r} is not among the classes given on the first call: {list(known)}")
            self.classes_ = np.concatenate([self.classes_, np.array(new)])
            known = {label: code for code, label in enumerate(self.classes_.tolist())}
        return np.array([known[label] for label in labels.tolist()], dtype=np.int32)

    def _next_batch(
        self,
        op: npt.NDArray[np.int8],
        key: npt.NDArray[np.int64],
        X: npt.NDArray[np.float64],
        y: npt.NDArray[np.int32],
        warmup: int = 0,
    ) -> UpdateBatch:
        row = np.full(len(op), -1, dtype=np.int64)
        return UpdateBatch(self._seq, op, key, X, y, len(self.classes_), row, warmup)

    def _advance(self, batch: UpdateBatch) -> None:
        """The model has taken a batch."""
        self._seq = batch.stop
        self._known.clear()

    def _store(self) -> ExampleStore:
        store: ExampleStore = self.session_.coordinator.store  # type: ignore[attr-defined]
        return store

    def _features(self) -> Features:
        assert self._encoder.features is not None
        return self._encoder.features

    def _model(self) -> dict[str, npt.NDArray[Any]]:
        loaded: dict[str, npt.NDArray[Any]] | None = getattr(self, "_loaded", None)
        return self.session_.model() if loaded is None else loaded

    def _predictor(self) -> Any:
        if "predictor" not in self._known:
            learner = learners()[self.kind]
            self._known["predictor"] = learner.predictor(self._fitted_options, self._features(), self._model())
        return self._known["predictor"]

    def _refuse_text_ids(self, instead: str) -> None:
        if self._columns.get("id_kind") == "text":
            raise InputError(
                "the ids of the examples are text, of which an estimator knows the codes only",
                remedy=f"Change the state that it was loaded from with raydt update, or {instead}",
            )

    def _refuse(self, bad: npt.NDArray[np.bool_], key: npt.NDArray[np.int64], reason: int) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            problem, remedy = REFUSALS[reason]
            raise UpdateError(f"id {key[row]}: {problem}", row=row, remedy=remedy)

    def _refuse_repeated(self, key: npt.NDArray[np.int64]) -> None:
        ids, counts = np.unique(key, return_counts=True)
        if (counts > 1).any():
            raise UpdateError(f"id {ids[counts > 1][0]} is given twice in one call", remedy="Give every id once")

    def _require_fitted(self) -> None:
        if self.__sklearn_is_fitted__():
            return
        message = f"This {type(self).__name__} instance is not fitted yet. Call 'fit' or 'partial_fit' first."
        try:
            from sklearn.exceptions import NotFittedError
        except ImportError:
            raise ValueError(message) from None
        raise NotFittedError(message)

    def _require_examples(self) -> None:
        if hasattr(self, "_loaded"):
            raise ModelFileError(
                "this model holds no training rows: it only predicts",
                remedy="Save with with_examples=True to go on learning",
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "session_") or hasattr(self, "_loaded")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(),
        )
