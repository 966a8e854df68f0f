"""The digest of a model: trees, sums and bins, and of its rows label and ledger by id; free of slots and node numbers.

Format: ``docs/reference/formats.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.digest import Digest, Padded, Part, begin_digest, digest
from raydt.arrays.types import Arrays, Ints
from raydt.batches.binning import SPARSE, Bins
from raydt.learners.gbdt.ensemble import Ensemble

#: Records of what could not grow, and of how far scores have moved, decide what is done later; the model is the same
#: without them.
_SKIPPED = ("node_tried_g", "node_tried_h", "node_tried_h_rest", "node_above", "node_below")


class ModelDigest:
    """Digests of a model as it changes, with up to ``width`` sparse features."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._begun: tuple[Bins, Digest] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is copied: all but a digest that is not complete, which cannot be."""
        return {**self.__dict__, "_begun": None}

    def of(self, ensemble: Ensemble | None, factors: Ints | None, leaving: Arrays, rows: Part) -> str:
        """Return the digest, given resolved weights of classes, the columns of rows that wait to be deleted, by id, and
        the part of all rows.

        O(nodes), and of a new training O(possible sparse features).
        """
        e = ensemble
        parts: Arrays = {"classes": np.array([e.classes if e else -1]), "exponent": np.array([e.exponent if e else 0])}
        if factors is not None:
            parts["class_weight"] = factors
        parts |= {f"leaving_{name}": column for name, column in leaving.items()}
        if e is not None:
            parts |= {name: array for name, array in e.nodes().items() if name not in _SKIPPED}
            parts["origin"] = np.array([e.loss.origin])
        begun = None if e is None else self._begin(e.bins)
        return digest([*((name, parts[name]) for name in sorted(parts)), rows], begun)

    def _begin(self, bins: Bins) -> Digest:
        """The beginning of a digest: the bins of all features, those of sparse ones without a cut too. O(1) memory."""
        if self._begun is None or self._begun[0] is not bins:
            arrays, width = bins.arrays(), self._width
            sparse, none = arrays.pop("bins_sparse", bins.sparse), bins.sparse[:0]
            rest = {
                "kinds": (SPARSE, none),
                "starts": (bins.starts[-1], none),
                "seen": (0, sparse),
                "default": (0, none),
            }
            longer = {f"bins_{name}": Padded(arrays[f"bins_{name}"], width, *after) for name, after in rest.items()}
            self._begun = bins, begin_digest((name, longer.get(name, arrays[name])) for name in sorted(arrays))
        return self._begun[1]
