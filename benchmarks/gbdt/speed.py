"""Time and memory of GBDT: training and updates beside LightGBM and XGBoost, ablation, tolerance, memory, threads."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from gbdt.data import (
    DEFAULT,
    ITERATIONS,
    MODES,
    SIZES,
    Split,
    add,
    agreement,
    delete,
    fitted,
    lightgbm,
    load,
    median,
    options_of,
    ours,
    predicted,
    quality,
    read,
    size_of,
    timed,
    trivial,
    xgboost,
)
from harness import Panel, Request, Style, peak_mb, progress, show, stored_bytes

import raydt

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


def speed_table(request: Request) -> None:
    """Training time beside LightGBM and XGBoost, and retrain time over update time; one core, CPU time, medians.

    All contestants are timed in turns within one run, after one turn that is not counted. A deletion of |D'| random
    rows is followed by the insertion of the same rows, so that the model always has its size; a retrain is of all rows.
    """
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
        for mode in request.derivatives or [DEFAULT, *MODES]:
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


#: Values of each option, and the paper's figure.
SWEEPS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "max_bins": ("Figure 11", (128, 255, 512, 1024, 2048, 4096)),
    "max_leaf_nodes": ("Figure 11", (4, 10, 20, 40, 60, 100, 200)),
    "candidate_fraction": ("Figure 7", (0.05, 0.1, 0.2, 0.5, 1.0)),
    "robustness_tolerance": ("Figure 10", (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)),
    "max_iter": ("Tables 14, 15", (100, 200, 500, 1000)),
}
LIGHTGBM_NAMES = {"max_bins": "max_bin", "max_leaf_nodes": "num_leaves"}
#: |D'| of Figures 6, 8 and 9.
SHARES = {**SIZES, "0.5 %": 0.005, "5 %": 0.05, "10 %": 0.1}
ABLATION_NOTE = "Default options but 255 bins and retrain: never, so that no training counts as an update."
OPERATIONS = ("delete", "add")
STYLES = {"delete": Style("#4477aa"), "add": Style("#ee6677")}


def point(split: Split, shares: dict[str, float], turns: int, **options: Any) -> dict[str, float]:
    """CPU times, nodes built and accuracy for one setting; phi of deleting the largest share, and of not doing it."""
    rng = np.random.default_rng(0)
    options = {"retrain": "never", **options}  # a training in between would be taken for an update
    seconds, model = timed(lambda: fitted(split, **options))
    found = {"train": seconds, "quality": quality(model, split)}
    untouched = predicted(model, split)
    for size, share in shares.items():
        parts: dict[str, list[float]] = {}
        for turn in range(turns + 1):
            rows = rng.choice(len(split), size_of(share, len(split)), replace=False)
            for operation in OPERATIONS:
                act = delete if operation == "delete" else lambda m, r: add(m, split, r)
                seconds, _ = timed(lambda act=act, rows=rows: act(model, rows))
                if turn:
                    parts.setdefault(f"{operation} {size}, s", []).append(seconds)
                    parts.setdefault(f"{operation} {size}, nodes", []).append(model.last_update_["nodes"])
                    parts.setdefault(f"{operation} {size}, trees", []).append(model.last_update_["trees_retrained"])
        found |= {key: median(values) for key, values in parts.items()}
        found[f"quality after {size}"] = quality(model, split)
    rows = rng.choice(len(split), size_of(max(SIZES.values()), len(split)), replace=False)
    delete(model, rows)
    retrained = predicted(fitted(split, np.setdiff1d(np.arange(len(split)), rows), **options), split)
    return {**found, "phi": agreement(predicted(model, split), retrained), "no-op": agreement(untouched, retrained)}


def sweep(split: Split, option: str, values: tuple[Any, ...], turns: int, **options: Any) -> list[dict[str, float]]:
    """One point per value, and LightGBM with the same bins, leaves and iterations."""
    found = []
    for value in values:
        changed = {LIGHTGBM_NAMES[option]: value} if option in LIGHTGBM_NAMES else {}
        rounds = value if option == "max_iter" else options.get("max_iter", ITERATIONS)
        times = [timed(lambda c=changed, r=rounds: lightgbm(split, iterations=r, **c))[0] for _ in range(turns + 1)]
        point_found = point(split, SIZES, turns, **{**options, option: value})
        found.append({**point_found, "LightGBM": median(times[1:])})
    return found


def ablation(request: Request) -> None:
    """Updates by |D'|, bins, leaves, alpha, sigma and iterations (appendix O, Figures 7 to 11, Tables 14 and 15)."""
    sets = [load(name) for name in request.sets("adult", "pendigits")]
    for split in sets:
        fitted(split, max_iter=2).forget([0], digests=False)  # compiles
    _by_size(request, sets)
    for option, (figure, values) in SWEEPS.items():
        grid = []
        for split in sets:
            found = sweep(split, option, values, request.seeds)
            rows = []
            for value, p in zip(values, found, strict=True):
                cells = [f"{p['train']:.3f}", f"{p['LightGBM']:.3f}", f"{p['quality']:.4f}"]
                cells += [f"{1e3 * p[f'{o} {s}, s']:.2f}" for o in OPERATIONS for s in SIZES]
                cells += [f"{p[f'{o} {s}, nodes']:.0f}" for o in OPERATIONS for s in SIZES]
                factors = [f"{p['LightGBM'] / p[f'{o} 1 row, s']:.0f}" for o in OPERATIONS]
                rows.append([f"{value:g}", *cells, *factors, f"{p['phi']:.4f}", f"{p['no-op']:.4f}"])
                progress(split.title, option, *rows[-1])
            header = [option, "train s", "LightGBM s", "accuracy"]
            header += [f"{o} {s}, ms" for o in OPERATIONS for s in SIZES]
            header += [f"{o} {s}, nodes" for o in OPERATIONS for s in SIZES]
            header += [f"LightGBM / {o} 1 row" for o in OPERATIONS]
            show(
                f"{figure}: {option}, {split.title}",
                [*header, "phi, 1 % deleted", "phi, not deleted"],
                rows,
                ABLATION_NOTE,
            )
            grid.append(_panels(split, option, values, found))
        request.draw(f"ablation-{option}", grid, STYLES)


def _panels(split: Split, option: str, values: tuple[Any, ...], found: list[dict[str, float]]) -> list[Panel]:
    def lines(what: str, scale: float) -> dict[str, list[tuple[float, float]]]:
        return {o: [(v, scale * p[f"{o} {what}"]) for v, p in zip(values, found, strict=True)] for o in OPERATIONS}

    titles = f"{split.title}: ms, 0.1 %", f"{split.title}: nodes retrained, 0.1 %"
    return [
        Panel(titles[0], lines("0.1 %, s", 1e3), x=option),
        Panel(titles[1], lines("0.1 %, nodes", 1.0), x=option),
    ]


def _by_size(request: Request, sets: list[Split]) -> None:
    rows, grid = [], []
    for split in sets:
        found = point(split, SHARES, request.seeds)
        for size in sorted(SHARES, key=SHARES.__getitem__):
            times = [f"{1e3 * found[f'{o} {size}, s']:.2f}" for o in OPERATIONS]
            work = [f"{found[f'{o} {size}, {what}']:.0f}" for what in ("trees", "nodes") for o in OPERATIONS]
            scores = [f"{found['quality']:.4f}", f"{found[f'quality after {size}']:.4f}"]
            rows.append([split.title, size, *times, *work, *scores])
            progress(*rows[-1])
        order = sorted(SHARES, key=SHARES.__getitem__)
        grid.append(
            [
                Panel(
                    f"{split.title}: {what}",
                    {o: [(100 * SHARES[s], scale * found[f"{o} {s}, {key}"]) for s in order] for o in OPERATIONS},
                    x="size of D' in per cent",
                )
                for what, key, scale in (("ms", "s", 1e3), ("nodes retrained", "nodes", 1.0))
            ]
        )
    header = ["data", "size of D'", *(f"{o}, ms" for o in OPERATIONS), *(f"{o}, trees retrained" for o in OPERATIONS)]
    header += [*(f"{o}, nodes" for o in OPERATIONS), "accuracy when trained", "after deleting and adding"]
    show("Figures 6, 8, 9: size of D'", header, rows, ABLATION_NOTE)
    request.draw("ablation-size", grid, STYLES)


WINDOW, STEP, STEPS = 3000, 150, 30
TOLERANCES: dict[str, dict[str, Any]] = {
    "never": {"derivatives": "never"},
    "retrained": {"derivatives": "retrained"},
    "0": {"derivatives": "changed_leaves"},
    **{str(tolerance): {"derivative_tolerance": tolerance} for tolerance in (0.1, 0.3, 1.0, 3.0)},
}


def prequential(X: Any, y: Any, regression: bool, **options: Any) -> tuple[float, float]:
    """Accuracy or R2 of a window over some rows, in per cent, and CPU seconds."""
    window, step = (WINDOW, STEP) if len(X) >= WINDOW + STEP * STEPS else (len(X) * 2 // 5, len(X) // 50)
    kind = raydt.OnlineGradientBoostingRegressor if regression else raydt.OnlineGradientBoostingClassifier
    began = time.process_time()
    model = kind(max_iter=50, **options).fit(X[:window], y[:window], ids=np.arange(window))
    said = []
    for i in range(STEPS):
        begin, end = window + i * step, min(window + (i + 1) * step, len(X))
        said.append(model.predict(X[begin:end]))
        model.forget(np.arange(i * step, i * step + end - begin), digests=False)
        model.partial_fit(X[begin:end], y[begin:end], ids=np.arange(begin, end))
    told, truth = np.concatenate(said), y[window:end]
    good = 1 - np.mean((told - truth) ** 2) / np.var(truth) if regression else np.mean(told == truth)
    return 100 * float(good), time.process_time() - began


def tolerance(request: Request) -> None:
    """Accuracy and time of a sliding window by what derivatives follow: ``never``, ``retrained``, and by the tolerance.

    A window of 3,000 rows, 30 steps of 150 rows out and in (of smaller sets two fifths of the rows, and the others in
    30 steps); 50 iterations. Each row is predicted before it is inserted.
    """
    rows = []
    for name in request.sets("electricity", "adult", "givemesomecredit", "optdigits", "pendigits", "abalone", "wine"):
        split = load(name)
        for retrain in ("never", "auto"):
            found = [
                prequential(split.X, split.y, split.regression, retrain=retrain, **one) for one in TOLERANCES.values()
            ]
            cells = [f"{good:.2f} ({seconds:.2f} s)" for good, seconds in found]
            rows.append([split.title, retrain, *cells])
            progress(*rows[-1])
    note = "Accuracy (R2 of Abalone and WineQuality) in per cent, and CPU time; one order of the rows."
    show("Tolerance of derivatives", ["data", "retrain", *TOLERANCES], rows, note)


#: Table 2 of the paper: "total allocated" MB of its framework, B = 1024 as our default.
PAPER = {
    "adult": 577.18,
    "givemesomecredit": 1096.71,
    "optdigits": 1081.15,
    "pendigits": 1959.49,
    "abalone": 762.78,
    "wine": 531.88,
}
#: Share of the sparse documents, in time order, that is trained on.
TRAINED = 0.8
LIMIT_MB = 4096


def dense(name: str, **options: Any) -> dict[str, float]:
    """Load, train, delete and add 1 %; MB of arrays and of the process."""
    split = load(name)
    found = {"data": split.X.nbytes / 2**20, "loaded": peak_mb()}
    model = fitted(split, max_bins=1024, **options)
    found["trained"] = peak_mb()
    rows = np.arange(size_of(0.01, len(split)))
    delete(model, rows)
    add(model, split, rows)
    session = model.session_
    found["arrays"] = stored_bytes(session.coordinator, session.shards) / 2**20
    return {**found, "updated": peak_mb()}


def documents() -> tuple[Any, Any]:
    """The sparse data: CSR of ones, and labels 0 and 1, in time order."""
    from scipy.sparse import csr_matrix

    table = read("reuters21578_earn_bydate")
    rows = table["indices"].combine_chunks()
    shape = len(rows), int(table.schema.metadata[b"n_features"])
    indices = rows.flatten().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(rows.value_lengths().to_numpy(zero_copy_only=False))])
    X = csr_matrix((np.ones(len(indices)), indices, offsets), shape)
    return X, (table["y"].to_numpy() > 0).astype(np.int64)


def sparse(documents_used: int | None = None, **options: Any) -> dict[str, float]:
    """Train on the first documents, delete 1 row, 0.1 %, 1 %, add them again; times, MB, accuracy on the later ones."""
    X, y = documents()
    X, y = X[:documents_used], y[:documents_used]
    cut = int(TRAINED * X.shape[0])
    split = Split("Reuters", X[:cut], y[:cut], X[cut:], y[cut:])
    found: dict[str, float] = {"rows": cut, "features": X.shape[1], "loaded": peak_mb()}
    found["train"], model = timed(lambda: fitted_sparse(split, **options))
    found["quality"], found["trivial"] = quality(model, split), trivial(split)
    found["trained"] = peak_mb()
    rng = np.random.default_rng(0)
    for size, share in SIZES.items():
        rows = np.sort(rng.choice(cut, size_of(share, cut), replace=False))
        found[f"delete {size}"] = timed(lambda rows=rows: delete(model, rows))[0]
        found[f"add {size}"] = timed(lambda rows=rows: add(model, split, rows))[0]
    found["quality after"] = quality(model, split)
    session = model.session_
    found["arrays"] = stored_bytes(session.coordinator, session.shards) / 2**20
    return {**found, "updated": peak_mb()}


def sparse_peer() -> dict[str, float]:
    X, y = documents()
    cut = int(TRAINED * X.shape[0])
    split = Split("Reuters", X[:cut], y[:cut], X[cut:], y[cut:])
    seconds, model = timed(lambda: lightgbm(split))
    return {"train": seconds, "quality": quality(model, split), "updated": peak_mb()}


def fitted_sparse(split: Split, **options: Any) -> Any:
    return ours(split, **options).fit(split.X, split.y, ids=np.arange(split.X.shape[0]))


def alone(function: str, *arguments: str) -> dict[str, float]:
    """``function`` of this module in a process of its own, so that the peak is its own."""
    code = f"import sys, json; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); from gbdt import speed; "
    code += f"print(json.dumps(speed.{function}(*{arguments!r})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def memory(request: Request) -> None:
    """Memory: stored arrays, and the peak of a process that loads, trains and updates; one process per data set."""
    if request.name == "sparse":
        _sparse(alone("sparse"), alone("sparse_peer"))
        return
    rows = []
    for name in request.sets(*PAPER):
        found, paper = alone("dense", name), PAPER[name]
        cells = [found[key] for key in ("data", "arrays", "loaded", "trained", "updated")]
        own = found["updated"] - found["loaded"]
        shares = [f"{found['arrays'] / paper:.2f}", f"{own / paper:.2f}"]
        rows.append([name, *(f"{cell:.0f}" for cell in cells), f"{own:.0f}", f"{paper:.0f}", *shares])
        progress(*rows[-1])
    header = ["data", "X in float64", "all stored arrays", "process, data loaded", "trained", "1 % deleted and added"]
    header += ["growth of the process", "paper, Table 2", "arrays / paper", "growth / paper"]
    note = "MB; 1024 bins as in the paper. Stored arrays include the live rows; the process includes interpreter, "
    show("Memory", header, rows, note + "compiled kernels, the data, and all scratch at its peak.")


def _sparse(found: dict[str, float], peer: dict[str, float]) -> None:
    shape = f"{found['rows']:,.0f} x {found['features']:,.0f}"
    scores = [f"{found[key]:.4f}" for key in ("quality", "quality after", "trivial")]
    times = [f"{found['train']:.1f}"]
    times += [f"{1e3 * found[f'{operation} {size}']:.0f}" for operation in ("delete", "add") for size in SIZES]
    sizes = [f"{found[key]:.0f}" for key in ("loaded", "arrays", "updated")]
    header = ["rows x features", "train s", *(f"{o} {s}, ms" for o in ("delete", "add") for s in SIZES)]
    header += ["accuracy", "after the updates", "majority", "MB, data loaded", "stored arrays", "process peak"]
    header += ["LightGBM: train s", "accuracy", "process peak"]
    other = [f"{peer['train']:.1f}", f"{peer['quality']:.4f}", f"{peer['updated']:.0f}"]
    note = f"The process peak must stay below {LIMIT_MB}; LightGBM in a process of its own."
    show("Sparse features", header, [[shape, *times, *scores, *sizes, *other]], note)
