"""An exact forest after deletions is, bit for bit, the one that never saw the examples.

    python examples/proof_of_deletion.py

Whoever has the remaining data can repeat this check; it needs no trust in the process that deleted.
"""

from __future__ import annotations

import numpy as np

from raydt import ExactForestClassifier


def main() -> None:
    """Delete from one forest, and train another without the examples."""
    rng = np.random.default_rng(7)
    X = rng.random((5_000, 6))
    y = (X[:, 0] > X[:, 1]).astype(int)
    ids = np.arange(len(X))
    gone = rng.choice(ids, 300, replace=False)
    kept = np.setdiff1d(ids, gone)

    after = ExactForestClassifier(n_estimators=30).fit(X, y, ids=ids)
    before = after.digest()
    after.forget(gone)
    never = ExactForestClassifier(n_estimators=30).fit(X[kept], y[kept], ids=kept)

    print("with the examples      ", before)
    print("after their deletion   ", after.digest())
    print("trained without them   ", never.digest())
    assert before != after.digest() == never.digest()


if __name__ == "__main__":
    main()
