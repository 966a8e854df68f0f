"""The receipt of one call of deletions and insertions: what it changed in the model, deletion by deletion.

Invariant: every figure was recorded by the learner while it applied this call. The paths and leaves are those at that
moment, not looked up in a later tree. A receipt is a few arrays, however many deletions it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.errors import UpdateError
from raydt.examples.targets import NUMBERS
from raydt.examples.updates import DELETE, INSERT, REFUSALS, BatchResult, Log, Refusal, UpdateBatch, joined
from raydt.learners.base import LearnerOptions
from raydt.sessions.session import InProcessSession

#: Where copies of examples may be beside files and the model, whoever deletes them.
IN_MEMORY = "freed memory of the processes that held them (overwritten when it is used again), swap space, core dumps"

#: Where copies of examples deleted from an estimator may be.
COPIES_OF_AN_ESTIMATOR = (
    "the arrays, data frames and files they came from",
    "folders written earlier by save(..., with_examples=True), and copies made of this object",
    "models saved and predictions made while they were in",
    "the categories and classes this object knows, where only they had one",
)

#: Columns of a log that a receipt says in other places, or that cannot be added up.
_TOLD_OTHERWISE = ("seq", "deletes", "inserts", "subtrees", "rows", "nodes", "depth")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Receipt:
    """What one call changed.

    Attributes
    ----------
    deletions : dict of str to ndarray, all of one length
        A row for each deletion, in the order in which they were applied (``pyarrow.table(receipt.deletions)`` is a
        table of it). ``id`` and ``label`` always; for ``fudyadt`` and
        ``sparse_tree``:

        ``id``
            As the caller names it: int64, or strings.
        ``label``
            Its class, whose count went down by one at every node of the path; of a regression the number.
        ``leaf``
            Leaf it was in before the call: place in preorder in the model of ``digest_before``.
        ``path``
            Nodes from the root to its leaf when it was deleted, both included: those whose counts changed.
        ``rebuilt_depth``, ``rebuilt_rows``, ``rebuilt_nodes``
            Depth of the node whose subtree this deletion caused to be rebuilt, examples in it, nodes built; -1, 0, 0
            if it caused none.

        For ``best_split`` ``path``, and ``changed``: whether the search after it found another feature. For
        ``confidence_tree`` ``leaf``, ``path``, and ``changed``: whether it made a node a leaf again (``revisit``).
    inserted : ndarray
        Ids inserted, in order.
    rebuilds, rebuilt_rows, rebuilt_nodes : int
        Subtrees rebuilt by the whole call, examples that went into them, and nodes built.
    work : dict of str to number
        What else the whole call took, in the learner's own words: for ``fudyadt`` ``counts_changed``, the nodes on the
        paths of all deleted and inserted examples, added up. For ``gbdt``, which applies the call at once,
        ``trees_checked`` and ``trees_retrained`` (by the deletions and by the insertions), ``refreshed`` (examples
        whose derivatives were replaced), ``rounds`` and ``seconds``. For ``best_split`` ``counts_changed`` (class
        counts of all examples, and of the side of the split that each was on), ``changes`` of the best feature and
        ``moves`` of features between buckets; nothing is rebuilt. For ``confidence_tree`` ``counts_changed`` as of
        ``fudyadt``, and the ``checks``, ``splits`` (those among them that are ``ties``, or have ``replaced`` another)
        and ``pruned`` nodes of the call.
    active_before, active : int
        Live examples before and after.
    digest_before, digest_after : str or None
        Digests of the model; None if the caller asked for none.
    copies : tuple of str
        Where copies of the deleted examples may remain; empty if nothing was deleted.
    log : dict of str to ndarray
        The learner's own record of the call (:attr:`raydt.examples.updates.BatchResult.log`).
    """

    deletions: dict[str, npt.NDArray[Any]]
    inserted: npt.NDArray[Any]
    rebuilds: int
    rebuilt_rows: int
    rebuilt_nodes: int
    work: dict[str, int | float]
    active_before: int
    active: int
    digest_before: str | None
    digest_after: str | None
    copies: tuple[str, ...]
    log: Log

    @property
    def ids(self) -> npt.NDArray[Any]:
        """Ids deleted, in order."""
        return self.deletions["id"]

    def __repr__(self) -> str:
        updates = f"{len(self.ids):,} deleted, {len(self.inserted):,} inserted"
        return f"Receipt({updates}, {self._changed}, {self.active:,} live)"

    @property
    def _changed(self) -> str:
        if "changes" in self.work:
            return f"{self.work['changes']:,} changes of the best feature"
        if "checks" in self.work:
            return f"{self.work['splits']:,} splits, {self.work['pruned']:,} pruned"
        return f"{self.rebuilds:,} rebuilds of {self.rebuilt_rows:,} rows"

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values; the columns of ``deletions`` are lists."""
        return {
            "digest_before": self.digest_before,
            "digest_after": self.digest_after,
            "active_before": self.active_before,
            "active": self.active,
            "deletes": len(self.ids),
            "inserts": len(self.inserted),
            "rebuilds": self.rebuilds,
            "rebuilt_rows": self.rebuilt_rows,
            "rebuilt_nodes": self.rebuilt_nodes,
            **self.work,
            "deletions": {name: column.tolist() for name, column in self.deletions.items()},
            "inserted": self.inserted.tolist(),
            "copies": list(self.copies),
        }


class RefusedError(UpdateError):
    """An update that the learner refuses; ``position`` is its place in the batch."""

    def __init__(self, refusal: Refusal) -> None:
        problem, remedy = REFUSALS[refusal.reason]
        super().__init__(problem, row=refusal.position, remedy=remedy)
        self.position = refusal.position


def apply_with_receipt(
    session: InProcessSession,
    batch: UpdateBatch,
    classes: Sequence[Any] | npt.NDArray[Any],
    options: LearnerOptions,
    *,
    copies: tuple[str, ...],
    ids: npt.NDArray[Any] | None = None,
    digest_before: str | None = None,
    digests: bool = True,
) -> Receipt:
    """Apply a batch of deletions and insertions and say what it changed.

    Parameters
    ----------
    session : InProcessSession
    batch : UpdateBatch
        DELETE and INSERT operations; the ids deleted are live before it.
    classes : sequence
        Labels in the order of their codes; empty where labels are numbers.
    options : LearnerOptions
        Of a learner that collects updates, what waits for more is applied, too; what is done then has no single cause.
    copies : tuple of str
        Where copies of the deleted examples may remain, beside what stays of them in the model.
    ids : ndarray, shape (m,), optional
        The updates' ids as the user names them; ``batch.id`` if None.
    digest_before : str, optional
        Digest of the model as it is, where it is known already.
    digests : bool
        Whether the receipt has digests, each of which costs O(live examples * log).

    Raises
    ------
    RefusedError
        The learner refuses an update. Those before it have taken effect: what is to take effect as a whole is checked
        before, or the session is given up.
    """
    names = batch.id if ids is None else ids
    deleted = batch.op == DELETE
    held = session.coordinator.locate(batch.id[deleted])
    if digests and digest_before is None:
        digest_before = session.digest()
    before = session.statistics() if options.counts else {}
    result = session.apply(batch)
    if result.refused:
        raise RefusedError(result.refused[0])
    if options.collects_updates:
        result.log = joined([result.log, session.finish()])
        result.statistics = session.statistics()
    targets = held.pop("y")
    labels = targets if targets.dtype == NUMBERS else np.asarray(classes)[targets]
    columns = {"id": names[deleted], "label": labels, **held}
    log, work = result.log, {}
    if options.collects_updates:
        work = {name: column.sum().item() for name, column in log.items() if name not in _TOLD_OTHERWISE}
    else:
        work = {"counts_changed": int(result.path.sum())}
        columns["path"] = result.path[deleted]
        work |= {name: result.statistics[name] - before[name] for name in options.counts}
        seq = batch.start + np.flatnonzero(deleted)
        columns |= _rebuilds_of(seq, result) if options.rebuilds else {"changed": np.isin(seq, log.get("seq", seq[:0]))}
    return Receipt(
        deletions=columns,
        inserted=names[batch.op == INSERT],
        rebuilds=int(log["subtrees"].sum()) if "subtrees" in log else len(log["rows"]) if "rows" in log else 0,
        rebuilt_rows=int(log["rows"].sum()) if "rows" in log else 0,
        rebuilt_nodes=int(log["nodes"].sum()) if "nodes" in log else 0,
        work=work,
        active_before=result.statistics["active"] + result.deletes - result.inserts,
        active=result.statistics["active"],
        digest_before=digest_before if digests else None,
        digest_after=session.digest() if digests else None,
        copies=(*copies, *options.stays, IN_MEMORY) if deleted.any() else (),
        log=log,
    )


def _rebuilds_of(seq: npt.NDArray[np.int64], result: BatchResult) -> dict[str, npt.NDArray[Any]]:
    """Depth, rows and nodes of the rebuild that each of some updates caused; ``seq`` ascends."""
    columns: dict[str, npt.NDArray[Any]] = {
        "rebuilt_depth": np.full(len(seq), -1, dtype=np.int32),
        "rebuilt_rows": np.zeros(len(seq), dtype=np.int64),
        "rebuilt_nodes": np.zeros(len(seq), dtype=np.int64),
    }
    if len(seq) and result.log:
        at = np.searchsorted(seq, result.log["seq"]).clip(max=len(seq) - 1)
        caused = seq[at] == result.log["seq"]
        for name, column in columns.items():
            column[at[caused]] = result.log[name.removeprefix("rebuilt_")][caused]
    return columns
