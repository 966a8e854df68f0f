"""Training time beside LightGBM and XGBoost, and retrain time over update time; one core, CPU time, medians.

All contestants are timed in turns within one run, after one turn that is not counted. A deletion of |D'| random rows is
followed by the insertion of the same rows, so that the model always has its size; a retrain is of all rows.
"""

from __future__ import annotations

import numpy as np
from gbdt.command import DEFAULT, MODES, Request
from gbdt.contestants import (
    SIZES,
    add,
    delete,
    fitted,
    lightgbm,
    median,
    options_of,
    quality,
    size_of,
    timed,
    trivial,
    xgboost,
)
from gbdt.data import Split, load
from kit import progress, show

CONTESTANTS = {"LightGBM": lightgbm, "XGBoost": xgboost, "ours": fitted}
#: Pairs of deletion and insertion of one row in a turn, since one takes a millisecond.
ONE_ROW_PAIRS = 5
NOTE = (
    "How often the peer's retrain contains our update. default: all options are the estimators' own (1,024 bins, "
    "bounded, retrain: auto, which trains all trees again after an eighth as many updates as rows; medians show the "
    "calls between). The others have 255 bins and retrain: never, so that only the update is measured. No digests."
)
#: Whose updates are shown, as the issue of the speed names them, and the least factors it asks for.
CLASSIFICATION = ("adult", "givemesomecredit", "optdigits", "pendigits")


def training(split: Split, turns: int) -> dict[str, tuple[float, float]]:
    """CPU seconds (median) and quality of each contestant."""
    times: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    models = {}
    for turn in range(turns + 1):
        for name, train in CONTESTANTS.items():
            seconds, models[name] = timed(lambda train=train: train(split))
            if turn:
                times[name].append(seconds)
    return {name: (median(times[name]), quality(models[name], split)) for name in CONTESTANTS}


def updates(split: Split, mode: str, turns: int, seed: int = 0) -> dict[tuple[str, str], float]:
    """Medians of CPU seconds by (operation, size), of retrains by (peer, ""), and quality ("quality", when)."""
    rng = np.random.default_rng(seed)
    model = fitted(split, **options_of(mode))
    before = quality(model, split)
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(turns + 1):
        counted = times if turn else {}
        for name in ("LightGBM", "XGBoost"):
            counted.setdefault((name, ""), []).append(timed(lambda name=name: CONTESTANTS[name](split))[0])
        for size, share in SIZES.items():
            for _ in range(1 if share else ONE_ROW_PAIRS):
                rows = rng.choice(len(split), size_of(share, len(split)), replace=False)
                counted.setdefault(("delete", size), []).append(timed(lambda rows=rows: delete(model, rows))[0])
                counted.setdefault(("add", size), []).append(timed(lambda rows=rows: add(model, split, rows))[0])
    found = {key: median(values) for key, values in times.items()}
    return {**found, ("quality", "before"): before, ("quality", "after"): quality(model, split)}


def run(request: Request) -> None:
    """Print the tables."""
    (_training if request.name == "training" else _updates)(request)


def _training(request: Request) -> None:
    rows = []
    for name in request.sets(*CLASSIFICATION, "abalone", "wine"):
        split = load(name)
        found = training(split, request.seeds)
        times = {who: f"{seconds:.3f}" for who, (seconds, _) in found.items()}
        ratio = found["ours"][0] / found["LightGBM"][0]
        scores = [f"{score:.4f}" for _, score in found.values()]
        rows.append([split.describe(), *times.values(), f"{ratio:.2f}", *scores, f"{trivial(split):.4f}"])
        progress(*rows[-1])
    header = ["data", *(f"{who} s" for who in CONTESTANTS), "ours / LightGBM"]
    header += [f"{who}: accuracy or MSE" for who in CONTESTANTS] + ["majority or mean"]
    show("Training", header, rows, "100 iterations, 20 leaves, learning rate 0.1, 255 bins, lambda 1, no minimum leaf.")


def _updates(request: Request) -> None:
    factors, details = [], []
    for name in request.sets(*CLASSIFICATION):
        split = load(name)
        for mode in request.modes(DEFAULT, *MODES):
            found = updates(split, mode, request.seeds)
            for operation in ("delete", "add"):
                own = [found[operation, size] for size in SIZES]
                by = {who: [f"{found[who, ''] / seconds:.1f}" for seconds in own] for who in ("LightGBM", "XGBoost")}
                factors.append([split.title, mode, operation, *by["LightGBM"], *by["XGBoost"]])
                details.append([split.title, mode, operation, *(f"{1e3 * seconds:.2f}" for seconds in own)])
                progress(*factors[-1])
            peers = [f"{1e3 * found[who, '']:.0f}" for who in ("LightGBM", "XGBoost")]
            scores = [f"{found['quality', when]:.4f}" for when in ("before", "after")]
            details[-2] += [*peers, *scores]
            details[-1] += [""] * 4
    sizes = list(SIZES)
    header = ["data", "derivatives", "", *(f"LightGBM, {s}" for s in sizes), *(f"XGBoost, {s}" for s in sizes)]
    show("Retrain time over update time", header, factors, NOTE)
    header = ["data", "derivatives", "", *(f"ms, {s}" for s in sizes), "LightGBM ms", "XGBoost ms"]
    show("Update times", [*header, "accuracy before", "after all updates"], details)
