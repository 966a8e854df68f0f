"""Delete customers from boosted trees, with receipts, next to LightGBM's only way: training again.

    python examples/forget_by_id.py

Prints what a deletion changed, processor time of both ways, and that the audit finds the model correct.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from raydt import OnlineGradientBoostingClassifier


def main() -> None:
    """Train, delete, compare."""
    rng = np.random.default_rng(7)
    X = rng.random((20_000, 10))
    y = np.where(X[:, 0] * X[:, 1] + 0.2 * rng.random(len(X)) > 0.3, "stays", "leaves")
    customers = np.arange(len(X)) + 100_000  # their ids

    ours = OnlineGradientBoostingClassifier(max_iter=50).fit(X, y, ids=customers)
    ours.forget(customers[-1:])  # the first call loads kernels
    gone = customers[:20]
    began = time.process_time()
    receipt = ours.forget(gone)
    took = time.process_time() - began
    print(f"{receipt.active_before:,} -> {receipt.active:,} customers in {1e3 * took:.1f} ms of processor time")
    print(f"digest {receipt.digest_before[:20]}... -> {receipt.digest_after[:20]}...")
    audit = ours.audit()
    print(f"audit: conformance {audit.conformance}, feasibility {audit.feasibility}")

    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        print("Install lightgbm to see how long it trains", file=sys.stderr)
        return
    kept = ~np.isin(customers, gone)
    theirs = LGBMClassifier(n_estimators=50, num_leaves=20, n_jobs=1, verbose=-1)
    began = time.process_time()
    theirs.fit(X[kept], y[kept])
    again = time.process_time() - began
    print(f"LightGBM trains again in {1e3 * again:.1f} ms: {again / took:.0f} times as long")


if __name__ == "__main__":
    main()
