"""Updates by |D'|, bins, leaves, alpha, sigma and iterations (appendix O, Figures 7 to 11, Tables 14 and 15)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gbdt.command import Request, draw
from gbdt.contestants import (
    ITERATIONS,
    SIZES,
    add,
    agreement,
    delete,
    fitted,
    lightgbm,
    median,
    predicted,
    quality,
    size_of,
    timed,
)
from gbdt.data import Split, load
from kit import progress, show
from paper.chart import Panel, Style

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
NOTE = "Default options but 255 bins and retrain: never, so that no training counts as an update."
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


def run(request: Request) -> None:
    """Print one table per option and data set, and draw the pictures."""
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
            show(f"{figure}: {option}, {split.title}", [*header, "phi, 1 % deleted", "phi, not deleted"], rows, NOTE)
            grid.append(_panels(split, option, values, found))
        draw(request, f"ablation-{option}", grid, STYLES)


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
    show("Figures 6, 8, 9: size of D'", header, rows, NOTE)
    draw(request, "ablation-size", grid, STYLES)
