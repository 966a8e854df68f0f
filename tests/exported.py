"""What exported models say of rows, by the library of each format."""

from __future__ import annotations

from typing import Any

import numpy as np


def outputs_of(to: str, model: Any, X: Any, trees: Any) -> Any:
    """Outputs before the link, shape (n, outputs)."""
    if to == "treelite":
        import treelite

        return treelite.gtil.predict(model, X, nthread=1, pred_margin=True).reshape(len(X), -1)
    if to == "onnx":
        from onnxruntime import InferenceSession

        session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["scores"], {"X": X})[0]
    if to == "lightgbm":
        return model.predict(X, raw_score=trees.link != "identity", num_threads=1).reshape(len(X), -1)
    if trees.link != "identity":
        return model.decision_function(X).reshape(len(X), -1)
    found = model.predict_proba(X) if len(trees.codes) else model.predict(X)
    return np.asarray(found).reshape(len(X), -1)


def probabilities_of(to: str, model: Any, X: Any) -> Any:
    """What the format makes of the outputs: shares of the classes, or of the second one."""
    if to == "treelite":
        import treelite

        return treelite.gtil.predict(model, X, nthread=1).reshape(len(X), -1)
    if to == "onnx":
        from onnxruntime import InferenceSession

        session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["shares"], {"X": X})[0]
    if to == "lightgbm":
        return model.predict(X, num_threads=1).reshape(len(X), -1)
    return model.predict_proba(X)


def largest_difference(expected: Any, found: Any) -> float:
    """0 if every double is equal."""
    if expected.shape != found.shape:
        raise AssertionError(f"shapes {expected.shape} and {found.shape}")
    return float(np.abs(expected - found).max(initial=0.0)) if (expected != found).any() else 0.0
