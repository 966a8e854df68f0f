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

from raydt.session import InProcessSession
from raydt.updates import DELETE, INSERT, BatchResult, UpdateBatch

#: Where copies of examples may be beside files, whoever deletes them.
IN_THE_MODEL = "the model itself: splits and thresholds chosen while they were in stay until their subtree is rebuilt"
IN_MEMORY = "freed memory of the processes that held them (overwritten when it is used again), swap space, core dumps"

#: Where copies of examples deleted from an estimator may be.
COPIES_OF_AN_ESTIMATOR = (
    "the arrays, data frames and files they came from",
    "folders written earlier by save(..., with_examples=True), and copies made of this object",
    "models saved and predictions made while they were in",
    "the categories and classes this object knows, where only they had one",
    IN_THE_MODEL,
    IN_MEMORY,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Receipt:
    """What one call changed.

    Attributes
    ----------
    deletions : dict of str to ndarray, all of one length
        A row for each deletion, in the order in which they were applied (``pyarrow.table(receipt.deletions)`` is a
        table of it). For ``fudyadt``:

        ``id``
            As the caller names it: int64, or strings.
        ``label``
            Its class. Its count went down by one at every node of the path.
        ``leaf``
            Leaf it was in before the call: place in preorder in the model of ``digest_before``.
        ``path``
            Nodes from the root to its leaf when it was deleted, both included: those whose counts changed.
        ``rebuilt_depth``, ``rebuilt_rows``, ``rebuilt_nodes``
            Depth of the node whose subtree this deletion caused to be rebuilt, examples in it, nodes built; -1, 0, 0
            if it caused none.
    inserted : ndarray
        Ids inserted, in order.
    rebuilds, rebuilt_rows, rebuilt_nodes : int
        Subtrees rebuilt by the whole call, examples that went into them, and nodes built.
    counts_changed : int
        Nodes on the paths of all deleted and inserted examples, added up.
    active_before, active : int
        Live examples before and after.
    digest_before, digest_after : str or None
        Digests of the model; None if the caller asked for none.
    copies : tuple of str
        Where copies of the deleted examples may remain; empty if nothing was deleted.
    """

    deletions: dict[str, npt.NDArray[Any]]
    inserted: npt.NDArray[Any]
    rebuilds: int
    rebuilt_rows: int
    rebuilt_nodes: int
    counts_changed: int
    active_before: int
    active: int
    digest_before: str | None
    digest_after: str | None
    copies: tuple[str, ...]

    @property
    def ids(self) -> npt.NDArray[Any]:
        """Ids deleted, in order."""
        return self.deletions["id"]

    def __repr__(self) -> str:
        return (
            f"Receipt({len(self.ids):,} deleted, {len(self.inserted):,} inserted, {self.rebuilds:,} rebuilds of "
            f"{self.rebuilt_rows:,} rows, {self.active:,} live)"
        )

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
            "counts_changed": self.counts_changed,
            "deletions": {name: column.tolist() for name, column in self.deletions.items()},
            "inserted": self.inserted.tolist(),
            "copies": list(self.copies),
        }


def apply_with_receipt(
    session: InProcessSession,
    batch: UpdateBatch,
    classes: Sequence[Any] | npt.NDArray[Any],
    *,
    copies: tuple[str, ...],
    ids: npt.NDArray[Any] | None = None,
    digest_before: str | None = None,
    digests: bool = True,
) -> Receipt:
    """Apply a batch of deletions and insertions, none of which will be refused, and say what it changed.

    Parameters
    ----------
    session : InProcessSession
    batch : UpdateBatch
        DELETE and INSERT operations; the ids deleted are live before it.
    classes : sequence
        Labels in the order of their codes.
    copies : tuple of str
        Where copies of the deleted examples may remain.
    ids : ndarray, shape (m,), optional
        The updates' ids as the user names them; ``batch.id`` if None.
    digest_before : str, optional
        Digest of the model as it is, where it is known already.
    digests : bool
        Whether the receipt has digests, each of which costs O(live examples * log).
    """
    names = batch.id if ids is None else ids
    deleted = batch.op == DELETE
    held = session.coordinator.locate(batch.id[deleted])
    if digests and digest_before is None:
        digest_before = session.digest()
    result = session.apply(batch)
    labels = np.asarray(classes)[held.pop("y")]
    columns = {"id": names[deleted], "label": labels, **held, "path": result.path[deleted]}
    log = result.log
    return Receipt(
        deletions=columns | _rebuilds_of(batch.start + np.flatnonzero(deleted), result),
        inserted=names[batch.op == INSERT],
        rebuilds=len(log["seq"]) if log else 0,
        rebuilt_rows=int(log["rows"].sum()) if log else 0,
        rebuilt_nodes=int(log["nodes"].sum()) if log else 0,
        counts_changed=int(result.path.sum()),
        active_before=result.statistics["active"] + result.deletes - result.inserts,
        active=result.statistics["active"],
        digest_before=digest_before if digests else None,
        digest_after=session.digest() if digests else None,
        copies=copies if deleted.any() else (),
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
