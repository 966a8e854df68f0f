"""Design choices of the in-place GBDT, one at a time, and classes that are added later (appendices O and M).

The estimators have their default options, but ``retrain: never``, so that only updates are measured, and one thread.
Beside each updated model a model with the same options that is trained on the same rows. A seed draws the rows of D',
or the order of the classes, and the split candidates. Figures are means over the seeds and their standard deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gbdt.data as kit
import numpy as np
from gbdt.data import Split
from harness import Request, progress, show

SETS = "adult", "givemesomecredit", "optdigits", "pendigits", "letter"
#: Batches D' of a trial, one after another, and the share of the rows in each of them.
STEPS, SHARE = 3, 0.01
SIZES = {"1 row": 0.0, "0.1 %": 0.001, "1 % (base)": SHARE, "10 %": 0.1}
#: Values by option; each is changed alone.
CHOICES: dict[str, tuple[Any, ...]] = {
    "candidate_fraction": (0.05, 1.0), "robustness_tolerance": (0.0, 0.5),
    "derivatives": ("never", "retrained", "changed_leaves"), "derivative_tolerance": (1.0,),
}  # fmt: skip
SETTINGS: dict[str, tuple[float, dict[str, Any]]] = {
    **{f"D' of {size}": (share, {}) for size, share in SIZES.items()},
    **{f"`{name}` {value}": (SHARE, {name: value}) for name, values in CHOICES.items() for value in values},
}
PEER, TRIVIAL = "LightGBM, trained", "majority or mean"


class Trial(NamedTuple):
    """Errors in per cent, CPU milliseconds of one batch or training, and retrained subtrees of one batch."""

    added: float
    deleted: float
    trained_whole: float
    trained_less: float
    add_ms: float = 0.0
    delete_ms: float = 0.0
    train_ms: float = 0.0
    add_subtrees: float = 0.0
    delete_subtrees: float = 0.0


def error(model: Any, split: Split) -> float:
    """Share of the test rows that are predicted wrong, or of the variance that is left, in per cent."""
    score = kit.quality(model, split)
    return 100 * (score / float(np.var(split.y_test)) if split.regression else 1 - score)


def options_of(seed: int, **options: Any) -> dict[str, Any]:
    return {"max_bins": kit.OWN_BINS, "retrain": "never", "n_jobs": 1, "random_state": seed, **options}


def trial(split: Split, seed: int, share: float, **options: Any) -> Trial:
    """Insert batches into a model that was trained without them, and delete them from one that has them all."""
    size, settings = kit.size_of(share, len(split)), options_of(seed, **options)
    order = np.random.default_rng(seed).permutation(len(split))
    batches, rest = order[: STEPS * size].reshape(STEPS, size), np.sort(order[STEPS * size :])
    less = kit.fitted(split, rest, **settings)
    train, whole = kit.timed(lambda: kit.fitted(split, **settings))
    trained = error(whole, split), error(less, split)
    taken = np.array(
        [
            [kit.timed(lambda rows=rows: kit.add(less, split, rows))[0] for rows in batches],
            [kit.timed(lambda rows=rows: kit.delete(whole, rows))[0] for rows in batches],
        ]
    )
    subtrees = [model.session_.statistics()["rebuilds"] / STEPS for model in (less, whole)]
    milliseconds = 1e3 * np.append(taken.mean(axis=1), train)
    return Trial(error(less, split), error(whole, split), *trained, *milliseconds, *subtrees)


def lightgbm(split: Split, seed: int) -> Trial:
    """Train LightGBM on all rows, and on the rows without the base's batches."""
    size = STEPS * kit.size_of(SHARE, len(split))
    rest = np.sort(np.random.default_rng(seed).permutation(len(split))[size:])
    seconds, whole = kit.timed(lambda: kit.lightgbm(split, seed=seed))
    found = error(whole, split), error(kit.lightgbm(split, rest, seed=seed), split)
    return Trial(*found, *found, train_ms=1e3 * seconds)


def spread(values: Sequence[float], sign: str = "", digits: int = 2) -> str:
    """Return mean and standard deviation as a cell."""
    return f"{np.mean(values):{sign}.{digits}f} ± {np.std(values, ddof=min(1, len(values) - 1)):.{digits}f}"


def ablations(request: Request) -> None:
    """Error and time of updated models by design choice, beside training (appendix O, Figures 7 to 11)."""
    names, found = request.sets(*SETS), dict[tuple[str, str], list[Trial]]()
    for name in names:
        split = kit.load(name)
        kit.delete(kit.fitted(split, np.arange(200), **options_of(0)), np.arange(9))  # compiles
        for setting, (share, options) in SETTINGS.items():
            found[setting, name] = [trial(split, seed, share, **options) for seed in range(request.seeds)]
            progress(name, setting, *(f"{value:.2f}" for value in np.mean(found[setting, name], axis=0)))
        found[PEER, name] = [lightgbm(split, seed) for seed in range(request.seeds)]
        trivial = kit.trivial(split)
        least = 100 * (trivial / float(np.var(split.y_test)) if split.regression else 1 - trivial)
        found[TRIVIAL, name] = [Trial(least, least, least, least)]
    rows: dict[str, list[list[str]]] = {"insertions": [], "deletions": [], "time": [], "subtrees": []}
    for setting in (*SETTINGS, PEER, TRIVIAL):
        lines: dict[str, list[str]] = {title: [setting] for title in rows}
        for name in names:
            added, deleted, whole, less, *times, add, delete = np.array(found[setting, name]).T
            for title, own, other in (("insertions", added, whole), ("deletions", deleted, less)):
                apart = f" ({spread(own - other, '+')})" if setting in SETTINGS else ""
                lines[title].append(spread(own) + apart if setting != TRIVIAL else f"{own[0]:.2f}")
            lines["time"].append(" / ".join(spread(ms, digits=int(ms.mean() < 10)) for ms in times if ms.any()))
            lines["subtrees"].append(f"{add.mean():.1f} / {delete.mean():.1f}" if setting in SETTINGS else "")
        for title, line in lines.items():
            rows[title].append(line)
    note = (
        f"{request.seeds} seeds, mean ± standard deviation; {STEPS} batches D' one after another, each of 1 % of the "
        "rows unless the line says otherwise; the base has candidate_fraction 0.1, robustness_tolerance 0.1, bounded "
        "derivatives of tolerance 0.3, 1,024 bins, 20 leaves, 100 iterations."
    )
    apart = "Error on the test rows in per cent (of numbers: of the variance); in brackets minus that of a model"
    header = ["", *names]
    show("Error after insertions", header, rows["insertions"], f"{note} {apart} trained on all rows.")
    show("Error after deletions", header, rows["deletions"], f"{apart} trained on the rows that are left.")
    show("CPU ms: one insertion of D' / one deletion / a training on all rows", header, rows["time"])
    show("Retrained subtrees: one insertion of D' / one deletion", header, rows["subtrees"])


#: Stages of a trial at which the updated model is compared.
STAGES = 5


class Stage(NamedTuple):
    """Errors in per cent on the test rows of the classes so far, then on all of them; CPU seconds."""

    updated: float
    trained: float
    updated_all: float
    trained_all: float
    seconds: float
    training: float


def compared(first: int, classes: int) -> list[int]:
    """Return the numbers of classes at which the updated model is compared."""
    return np.unique(np.linspace(first + 1, classes, STAGES).round().astype(int)).tolist()


def added_classes(split: Split, first: int, seed: int) -> list[Stage]:
    """Train on the rows of ``first`` classes, and insert those of each further class in one call."""
    order, settings = np.random.default_rng(seed).permutation(split.classes), options_of(seed)
    rank = np.argsort(order)[split.y]
    model, stages = kit.fitted(split, np.flatnonzero(rank < first), **settings), list[Stage]()
    for now in range(first + 1, split.classes + 1):
        new, live = np.flatnonzero(rank == now - 1), np.flatnonzero(rank < now)
        seconds, _ = kit.timed(lambda new=new: kit.add(model, split, new))
        if now in compared(first, split.classes):
            training, trained = kit.timed(lambda live=live: kit.fitted(split, live, **settings))
            wrong = [kit.predicted(one, split) != split.y_test for one in (model, trained)]
            own = np.isin(split.y_test, order[:now])
            errors = [100 * float(part.mean()) for part in (*(one[own] for one in wrong), *wrong)]
            stages.append(Stage(*errors, seconds, training))
    return stages


def classes(request: Request) -> None:
    """Classes that the model has never seen, inserted one after another (appendix M, Figure 5)."""
    rows = []
    for name in request.sets("letter", "pendigits", "optdigits"):
        split = kit.load(name)
        for first in (1, split.classes // 2):
            found = np.array([added_classes(split, first, seed) for seed in range(request.seeds)])
            for now, stage in zip(compared(first, split.classes), found.transpose(1, 2, 0), strict=True):
                updated, trained, updated_all, trained_all, seconds, training = stage
                cells = [spread(updated), spread(trained), spread(updated - trained, "+")]
                cells += [spread(updated_all), spread(trained_all), spread(seconds), spread(training)]
                rows.append([name, str(first), str(now), *cells])
                progress(*rows[-1])
        peer = [100 * (1 - kit.quality(kit.lightgbm(split, seed=seed), split)) for seed in range(request.seeds)]
        majority = f"{100 * (1 - kit.trivial(split)):.2f}"
        rows.append([name, "LightGBM", str(split.classes), "", spread(peer), *[""] * 5])
        rows.append([name, "majority", str(split.classes), "", majority, *[""] * 5])
    header = ["data", "classes at first", "now", "updated", "trained", "updated - trained"]
    header += ["updated, all test rows", "trained, all test rows", "insertion, CPU s", "training, CPU s"]
    note = (
        f"{request.seeds} orders of the classes, mean ± standard deviation; no class is declared beforehand. Error in "
        "per cent of the test rows of the classes so far, then of all test rows."
    )
    show("Classes added one after another", header, rows, note)
