"""Time and memory of GBDT: training and updates beside LightGBM and XGBoost, memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gbdt.data as kit
import numpy as np
from gbdt.data import Split
from harness import Request, peak_mb, progress, show, stored_bytes

CONTESTANTS = {"LightGBM": kit.lightgbm, "XGBoost": kit.xgboost, "ours": kit.fitted}
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
    times: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    models = {}
    for turn in range(turns + 1):
        for name, train in CONTESTANTS.items():
            seconds, models[name] = kit.timed(lambda train=train: train(split))
            if turn:
                times[name].append(seconds)
    return {name: (kit.median(times[name]), kit.quality(models[name], split)) for name in CONTESTANTS}


def updates(split: Split, mode: str, turns: int, seed: int = 0) -> dict[tuple[str, str], float]:
    """Medians of CPU seconds by (operation, size), of retrains by (peer, ""), and quality ("quality", when)."""
    rng = np.random.default_rng(seed)
    model = kit.fitted(split, **kit.options_of(mode))
    before = kit.quality(model, split)
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(turns + 1):
        counted = times if turn else {}
        for name in ("LightGBM", "XGBoost"):
            counted.setdefault((name, ""), []).append(kit.timed(lambda name=name: CONTESTANTS[name](split))[0])
        for size, share in kit.SIZES.items():
            for _ in range(1 if share else ONE_ROW_PAIRS):
                rows = rng.choice(len(split), kit.size_of(share, len(split)), replace=False)
                acts = {"delete": lambda r=rows: kit.delete(model, r), "add": lambda r=rows: kit.add(model, split, r)}
                for operation, act in acts.items():
                    counted.setdefault((operation, size), []).append(kit.timed(act)[0])
    found = {key: kit.median(values) for key, values in times.items()}
    return {**found, ("quality", "before"): before, ("quality", "after"): kit.quality(model, split)}


def training_times(request: Request) -> None:
    """Training time beside LightGBM and XGBoost: one core, CPU time, medians of turns after one that is not counted."""
    rows = []
    for name in request.sets(*CLASSIFICATION, "abalone", "wine"):
        split = kit.load(name)
        found = training(split, request.seeds)
        times = {who: f"{seconds:.3f}" for who, (seconds, _) in found.items()}
        ratio = found["ours"][0] / found["LightGBM"][0]
        scores = [f"{score:.4f}" for _, score in found.values()]
        rows.append([split.describe(), *times.values(), f"{ratio:.2f}", *scores, f"{kit.trivial(split):.4f}"])
        progress(*rows[-1])
    header = ["data", *(f"{who} s" for who in CONTESTANTS), "ours / LightGBM"]
    header += [f"{who}: accuracy or MSE" for who in CONTESTANTS] + ["majority or mean"]
    show("Training", header, rows, "100 iterations, 20 leaves, learning rate 0.1, 255 bins, lambda 1, no minimum leaf.")


def update_times(request: Request) -> None:
    """Retrain time over update time: one core, CPU time, medians of turns after one that is not counted.

    A deletion of |D'| random rows is followed by the insertion of the same rows, so that the model always has its size;
    a retrain is of all rows.
    """
    factors, details = [], []
    for name in request.sets(*CLASSIFICATION):
        split = kit.load(name)
        for mode in request.derivatives or [kit.DEFAULT, *kit.MODES]:
            found = updates(split, mode, request.seeds)
            for operation in ("delete", "add"):
                own = [found[operation, size] for size in kit.SIZES]
                by = {who: [f"{found[who, ''] / seconds:.1f}" for seconds in own] for who in ("LightGBM", "XGBoost")}
                factors.append([split.title, mode, operation, *by["LightGBM"], *by["XGBoost"]])
                details.append([split.title, mode, operation, *(f"{1e3 * seconds:.2f}" for seconds in own)])
                progress(*factors[-1])
            peers = [f"{1e3 * found[who, '']:.0f}" for who in ("LightGBM", "XGBoost")]
            scores = [f"{found['quality', when]:.4f}" for when in ("before", "after")]
            details[-2] += [*peers, *scores]
            details[-1] += [""] * 4
    sizes = list(kit.SIZES)
    header = ["data", "derivatives", "", *(f"LightGBM, {s}" for s in sizes), *(f"XGBoost, {s}" for s in sizes)]
    show("Retrain time over update time", header, factors, NOTE)
    header = ["data", "derivatives", "", *(f"ms, {s}" for s in sizes), "LightGBM ms", "XGBoost ms"]
    show("Update times", [*header, "accuracy before", "after all updates"], details)


#: Table 2 of the paper: "total allocated" MB of its framework, B = 1024 as our default.
PAPER = {
    "adult": 577.18, "givemesomecredit": 1096.71, "optdigits": 1081.15, "pendigits": 1959.49, "abalone": 762.78,
    "wine": 531.88,
}  # fmt: skip


def dense(name: str) -> dict[str, float]:
    """Load, train, delete and add 1 %; MB of arrays and of the process."""
    split = kit.load(name)
    found = {"data": split.X.nbytes / 2**20, "loaded": peak_mb()}
    model = kit.fitted(split, max_bins=1024)
    found["trained"] = peak_mb()
    rows = np.arange(kit.size_of(0.01, len(split)))
    kit.delete(model, rows)
    kit.add(model, split, rows)
    session = model.session_
    found["arrays"] = stored_bytes(session.coordinator, session.shards) / 2**20
    return {**found, "updated": peak_mb()}


def alone(name: str) -> dict[str, float]:
    """Measure a data set in a process of its own, so that the peak is its own."""
    code = f"import sys, json; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); from gbdt import speed; "
    code += f"print(json.dumps(speed.dense({name!r})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def memory(request: Request) -> None:
    """Memory: stored arrays, and the peak of a process that loads, trains and updates; one process per data set."""
    rows = []
    for name in request.sets(*PAPER):
        found, paper = alone(name), PAPER[name]
        cells = [found[key] for key in ("data", "arrays", "loaded", "trained", "updated")]
        own = found["updated"] - found["loaded"]
        shares = [f"{found['arrays'] / paper:.2f}", f"{own / paper:.2f}"]
        rows.append([name, *(f"{cell:.0f}" for cell in cells), f"{own:.0f}", f"{paper:.0f}", *shares])
        progress(*rows[-1])
    header = ["data", "X in float64", "all stored arrays", "process, data loaded", "trained", "1 % deleted and added"]
    header += ["growth of the process", "paper, Table 2", "arrays / paper", "growth / paper"]
    note = "MB; 1024 bins as in the paper. Stored arrays include the live rows; the process includes interpreter, "
    show("Memory", header, rows, note + "compiled kernels, the data, and all scratch at its peak.")
