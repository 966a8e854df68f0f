"""What all estimators share: scikit-learn's conventions, stable ids, deletion, audit, saving.

An estimator is a session in this process. scikit-learn is not needed to use it; where it is installed, its tags,
``clone`` and errors work.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.audit import AuditReport, history_of_live
from raydt.errors import InputError, ModelFileError, UpdateError
from raydt.estimators.arguments import ids_of
from raydt.estimators.frames import FrameEncoder
from raydt.estimators.index_lists import ListEncoder
from raydt.estimators.parameters import Parameters
from raydt.example_store import ExampleStore
from raydt.features import Features
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.persistence import save_folder
from raydt.receipt import COPIES_OF_AN_ESTIMATOR, Receipt, apply_with_receipt
from raydt.saved_model import SavedModel, model_meta, state_components
from raydt.session import InProcessSession
from raydt.sources.base import Reading
from raydt.sparse import SparseRows
from raydt.targets import Targets, dtype_of, no_targets
from raydt.updates import DELETE, DUPLICATE_ID, INSERT, REFUSALS, UNKNOWN_ID, Log, UpdateBatch, joined, running_ids

Self = TypeVar("Self", bound="Estimator")


class Estimator(Parameters, ABC):
    """Base of :class:`raydt.estimators.targets.Classifier` and ``Regressor``, which know what ``y`` is."""

    categorical_features: Sequence[str | int] | None
    #: Of the state that was loaded, if one was: the columns that its labels and ids came from.
    _columns: dict[str, Any]
    #: Arrays of a model that was loaded without examples.
    _loaded: dict[str, npt.NDArray[Any]]

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
        width = self._features().sparse
        nothing = np.empty((0, len(self._features().names)))
        no_y = no_targets(0, dtype_of(self._fitted_options.regression))
        batch = self._next_batch(np.full(len(key), DELETE, dtype=np.int8), key, nothing, no_y)
        if width:
            batch = replace(batch, sparse=SparseRows.empty(width))
        receipt = apply_with_receipt(
            self.session_,
            batch,
            self._classes,
            self._fitted_options,
            copies=COPIES_OF_AN_ESTIMATOR,
            digest_before=before,
            digests=digests,
        )
        self._advance(batch, receipt.log)
        if digests:
            self._known["digest"] = receipt.digest_after
        return receipt

    def forget_examples(self, X: Any, y: Any, *, digests: bool = True) -> Receipt:
        """Delete examples by value: for each row the oldest live example equal to it (NaN equals NaN).

        All of them or, if an error is raised, none. A row takes O(live examples x features), of a tree O(rows of its
        leaf); ``digests`` as in :meth:`forget`.

        Raises
        ------
        InputError
            Values that ``fit`` would refuse, or lengths that differ.
        UpdateError
            Fewer live examples equal a row than the call asks to delete.
        """
        rows = self._rows(X)
        self._require_examples()
        given, sparse = self._checked(y), self._sparse_of(X, known=True)
        if len(rows) != len(given):
            raise InputError(f"X has {len(rows)} rows and y has {len(given)}")
        coordinator: Any = self.session_.coordinator
        taken: dict[tuple[bytes, ...], list[int]] = {}
        chosen = []
        for row, target in enumerate(self._looked_up(given).tolist()):
            value = rows[row].tobytes(), repr(target).encode(), *(s.row(row).tobytes() for s in sparse.values())
            if value not in taken:
                slots = self.session_.driver.run(coordinator.find_equal(rows, row, target, **sparse))
                taken[value] = self._store().id[slots][::-1].tolist()
            if not taken[value]:
                raise UpdateError(
                    "no live example equals this one", row=row, remedy="The exact features and label are needed"
                )
            chosen.append(taken[value].pop())
        return self.forget(np.array(chosen, dtype=np.int64), digests=digests)

    # ------------------------------------------------------------ using

    def digest(self) -> str:
        """Digest of the live model: equal for equal streams, whatever their cut into calls."""
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
        self._require_fitted()
        self._require_examples()
        state, groups = self.session_.state()
        history = history_of_live(state, groups, self._features())
        return learners()[self.kind].audit(self._fitted_options, self._features(), state, history, groups)

    def save(self, path: Any, with_examples: bool = False) -> None:
        """Write a folder that :func:`raydt.load_model` reads: to predict, or, with the examples, to go on.

        Raises
        ------
        InputError
            The examples are to be saved, but came from a state whose ids are text.
        """
        self._require_fitted()
        categories = {name: dictionary.values for name, dictionary in self._encoder.dictionaries.items()}
        meta = model_meta(self._fitted_options, self._features(), self._classes, categories)
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
        self._fitted_options = saved.options.model_copy(update=cls._fixed)
        names, kinds = saved.features.names, saved.features.categorical
        categorical = [name for name, kind in zip(names, kinds, strict=True) if kind]
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

    def _more(self: Self, X: Any, y: Any, classes: Any, ids: Any) -> Self:
        """Insert examples into the model; the first ones make it."""
        if not self.__sklearn_is_fitted__():
            return self._begin(X, y, classes, ids, warmup=bool(self._options().needs_warmup))
        self._require_examples()
        return self._insert(X, y, ids, warmup=False)

    def _start(self, X: Any, y: Any, classes: Any) -> None:
        self._fitted_options = self._options()
        self._encoder = self._new_encoder(self.categorical_features)
        self._encoder.learn(X)
        Reading.of(self._fitted_options).require(self._features())
        self._learn_targets(y, classes)
        self.__dict__.pop("_loaded", None)
        self._declared = classes is not None
        self._seq, self._next_id, self._columns = 0, 0, {}
        self._set_fitted()
        self._open_session()

    def _takes_missing(self) -> bool:
        return bool(learners()[self.kind].Options.takes_missing)

    def _new_encoder(self, categorical: Sequence[str | int] | None) -> FrameEncoder:
        options = self._fitted_options
        kind = ListEncoder if options.needs_sparse else FrameEncoder
        encoder = kind(categorical, options.feature_groups, options.takes_missing)
        encoder.takes_sparse = options.takes_sparse
        return encoder

    def _set_fitted(self) -> None:
        features = self._features()
        self._known: dict[str, Any] = {}  # predictor and digest of the model as it is, once they were needed
        self.n_features_in_ = len(features)
        self.__dict__.pop("feature_names_in_", None)
        if self._encoder.named:
            sparse = (features.sparse_column,) if features.sparse else ()
            self.feature_names_in_ = np.array(features.names + sparse, dtype=object)

    def _open_session(self) -> None:
        plan = WorkPlan(local_work_limit=2**62)
        self.session_ = InProcessSession(learners()[self.kind], self._fitted_options, self._features(), 1, plan)

    def _insert(self: Self, X: Any, y: Any, ids: Any, warmup: bool) -> Self:
        given = self._checked(y)
        with self._encoder.undoing():
            rows = self._encoder.encode(X, type(self).__name__, grow=True)
            sparse = self._encoder.sparse_of(X, type(self).__name__, known=True)
            if len(rows) != len(given):
                raise InputError(f"X has {len(rows)} rows and y has {len(given)}")
            if ids is None:
                key = running_ids(self._next_id, len(rows))
            else:
                key = ids_of(ids)
                if key.shape != (len(rows),):
                    raise InputError(f"X has {len(rows)} rows and ids has shape {key.shape}")
            self._refuse_repeated(key)
            self._refuse(self._store().find(key) >= 0, key, DUPLICATE_ID)
            targets = self._encoded(given)  # the last that can be refused
        op = np.full(len(rows), INSERT, dtype=np.int8)
        batch = replace(self._next_batch(op, key, rows, targets, len(rows) if warmup else 0), sparse=sparse)
        log = self.session_.apply(batch).log
        if self._fitted_options.collects_updates:
            log = joined([log, self.session_.finish()])
        self._advance(batch, log)
        self._next_id = max(self._next_id, int(key.max(initial=-1)) + 1)
        self.row_ids_ = key
        return self

    def _next_batch(
        self,
        op: npt.NDArray[np.int8],
        key: npt.NDArray[np.int64],
        X: npt.NDArray[np.float64],
        y: Targets,
        warmup: int = 0,
    ) -> UpdateBatch:
        row = np.full(len(op), -1, dtype=np.int64)
        return UpdateBatch(self._seq, op, key, X, y, len(self._classes), row, warmup)

    def _advance(self, batch: UpdateBatch, log: Log) -> None:
        """The model has taken a batch, and this is its record of it."""
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

    def _rows(self, X: Any) -> npt.NDArray[np.float64]:
        """Rows to predict, as the learner takes them."""
        self._require_fitted()
        return self._encoder.encode(X, type(self).__name__, grow=False)

    def _sparse_of(self, X: Any, known: bool = False) -> dict[str, SparseRows]:
        """The sparse features of ``X``, as a predictor takes them."""
        sparse = self._encoder.sparse_of(X, type(self).__name__, known)
        return {} if sparse is None else {"sparse": sparse}

    # ------------------------------------------------------------ what y is

    @property
    @abstractmethod
    def _classes(self) -> list[Any]:
        """Labels in the order of their codes, as plain values; empty where they are numbers."""

    @abstractmethod
    def _take_classes(self, classes: list[Any]) -> None:
        """Go on with the classes of a saved model."""

    @abstractmethod
    def _learn_targets(self, y: Any, classes: Any) -> None:
        """Take from the first ``y``, or from all classes declared, what there is to know of targets."""

    @abstractmethod
    def _checked(self, y: Any) -> npt.NDArray[Any]:
        """One target per row as the user gives it, shape (n,), or an error."""

    @abstractmethod
    def _looked_up(self, given: npt.NDArray[Any]) -> Targets:
        """The same without learning anything from it: what no example has is -1."""

    @abstractmethod
    def _encoded(self, given: npt.NDArray[Any]) -> Targets:
        """What :meth:`_checked` gave as the learner takes it."""
