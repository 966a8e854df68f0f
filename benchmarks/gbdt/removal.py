"""Measure the traces of a deletion: backdoors, membership inference, poisoning, cumulative changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import gbdt.data as kit
import numpy as np
import numpy.typing as npt
from gbdt.data import Split
from harness import Request, progress, show

SHARE, TRIGGER_FEATURES, TARGET = 0.01, 3, 0
#: Attack success and accuracy of the paper, per cent: clean, trained in, added, removed.
PAPER = {
    "Optdigits": "8.91 / 100 / 100 / 9.69; 96.21 / 96.27 / 95.94 / 95.82",
    "Pendigits": "3.97 / 100 / 100 / 5.55; 96.11 / 96.43 / 96.48 / 96.51",
}
STAGES = ("clean", "added", "removed again", "trained in", "then removed", "clean, other seed")


def poisoned(split: Split, seed: int) -> tuple[Split, Any, Any]:
    """The training set with triggered rows; the numbers of its clean and of its triggered rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(split))
    rows, clean = np.split(order, [max(1, round(SHARE * len(split)))])
    X, y = split.X.copy(), split.y.copy()
    X[rows], y[rows] = triggered(split, X[rows]), TARGET
    return Split(split.title, X, y, split.X_test, split.y_test), np.sort(clean), np.sort(rows)


def triggered(split: Split, X: Any) -> Any:
    features = np.flatnonzero(np.nanmax(split.X, axis=0) > np.nanmin(split.X, axis=0))[:TRIGGER_FEATURES]
    X = X.copy()
    X[:, features] = np.nanmax(split.X, axis=0)[features]
    return X


def success(model: Any, split: Split) -> float:
    """Share of triggered test rows of other classes that get the target label."""
    others = triggered(split, split.X_test[split.y_test != TARGET])
    return float(np.mean(kit.predicted(model, split, others) == TARGET))


def trial(split: Split, seed: int, **options: Any) -> dict[str, tuple[float, float]]:
    data, clean, rows = poisoned(split, seed)
    found = {}

    def note(stage: str, model: Any) -> None:
        found[stage] = success(model, split), kit.quality(model, split)

    model = kit.fitted(data, clean, **options)
    note("clean", model)
    note("added", kit.add(model, data, rows))
    kit.delete(model, rows)
    note("removed again", model)
    model = kit.fitted(data, np.sort(np.concatenate([clean, rows])), **options)
    note("trained in", model)
    kit.delete(model, rows)
    note("then removed", model)
    note("clean, other seed", kit.fitted(data, clean, **{**options, "random_state": 1}))
    return found


def backdoor(request: Request) -> None:
    """A backdoor added to a trained model and removed again (appendix J, Table 4).

    A random share of the training rows gets the trigger (the greatest value of three features that vary) and the target
    label; the rest is clean. Attack success is the share of triggered test rows that are given the target label,
    without the rows whose label it is anyway (the paper counts them, about a tenth of the rows, in every column).
    """
    rows = []
    for name in request.sets("optdigits", "pendigits"):
        split = kit.load(name)
        for mode in request.derivatives or ["bounded", "retrained", "never"]:
            trials = [trial(split, seed, **kit.options_of(mode)) for seed in range(request.seeds)]
            for part, what in enumerate(("attack success %", "accuracy %")):
                cells = [kit.mean_and_error([t[stage][part] for t in trials], 100.0) for stage in STAGES]
                worst = max(
                    abs(t[stage][part] - t["clean"][part])
                    for t in trials
                    for stage in ("removed again", "then removed")
                )
                rows.append([split.title, mode, what, *cells, f"{100 * worst:.2f}"])
                progress(*rows[-1])
    paper = "; ".join(f"{title} {figures}" for title, figures in PAPER.items())
    note = (
        f"{request.seeds} seeds, mean and standard error; 1 % of the rows poisoned. The control of removal is not to "
        'remove: "added" and "trained in". In the paper (clean, trained in, added, removed; success, accuracy): '
        f"{paper}."
    )
    header = ["data", "derivatives", "", *STAGES, "largest distance of a removal from clean, any seed"]
    show("Backdoor", header, rows, note)


#: Shares of base data and D'; the paper's D' of 0.1 % is six rows of Optdigits.
BASE, ONLINE = 0.49, 0.01
OVERFIT = {"max_iter": 5, "learning_rate": 1.0, "max_leaf_nodes": 200, "l2_regularization": 0.0}
PARTS = ("base", "D'", "test")
MEMBERSHIP_STAGES = ("trained", "D' deleted", "D' added again", "never saw D'")


def evidence(model: Any, split: Split, rows: Any) -> Any:
    """Return the features of the attack for each row: sorted probabilities, and that of the true label."""
    p = model.predict_proba(split.X[rows])
    return np.column_stack([np.sort(p, axis=1)[:, ::-1], p[np.arange(len(rows)), split.y[rows]]])


def membership_trial(split: Split, seed: int, **options: Any) -> dict[tuple[str, str], float]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    order = np.random.default_rng(seed).permutation(len(split))
    base, online, test = np.split(order, np.cumsum([int(BASE * len(order)), max(1, round(ONLINE * len(order)))]))
    settings = {**OVERFIT, **options}
    trained = np.sort(np.concatenate([base, online]))
    model = kit.fitted(split, trained, **settings)
    (known, base), (unknown, test) = np.array_split(base, 2), np.array_split(test, 2)
    attack = HistGradientBoostingClassifier(random_state=0).fit(
        np.concatenate([evidence(model, split, known), evidence(model, split, unknown)]),
        np.repeat([1, 0], [len(known), len(unknown)]),
    )
    found = {}

    def note(stage: str, model: Any) -> None:
        for part, rows in zip(PARTS, (base, online, test), strict=True):
            found[stage, part] = float(np.mean(attack.predict(evidence(model, split, rows))))

    note("trained", model)
    kit.delete(model, online)
    note("D' deleted", model)
    note("D' added again", kit.add(model, split, online))
    note("never saw D'", kit.fitted(split, np.setdiff1d(trained, online), **settings))
    return found


def whole(split: Split) -> Split:
    X, y = np.concatenate([split.X, split.X_test]), np.concatenate([split.y, split.y_test])
    return Split(split.title, X, y, split.X_test, split.y_test)


def membership(request: Request) -> None:
    """Membership inference (appendix K, Table 9): can deleted rows still be told from rows that were never seen?

    Half of the rows train an overfitted model (5 iterations, learning rate 1), half do not. An attack model learns,
    from half of the members and half of the others, to tell them apart by the predicted probabilities and that of the
    true label. It is then asked about the other halves and about D', which is a member, is deleted, and is added again.
    The controls: D' before the deletion (doing nothing), and a model that never saw it.
    """
    rows = []
    for name in request.sets("optdigits", "pendigits"):
        split = whole(kit.load(name))
        for mode in request.derivatives or ["bounded", "retrained", "never"]:
            trials = [membership_trial(split, seed, **kit.options_of(mode)) for seed in range(request.seeds)]
            for stage in MEMBERSHIP_STAGES:
                cells = [kit.mean_and_error([t[stage, part] for t in trials], 100.0, 1) for part in PARTS]
                rows.append([split.title, mode, stage, *cells])
                progress(*rows[-1])
    note = (
        f"Share of rows said to be training rows, per cent; {request.seeds} seeds, D' is 1 % of the rows. Paper (base, "
        "D', test): trained 100, 100, 44 (Optdigits) and 100, 100, 56 (Pendigits); deleted 100, 34, 42 and 100, 55, 46."
    )
    show("Membership inference", ["data", "derivatives", "model", *PARTS], rows, note)


FLIPPED = 6000
MODELS = ("clean", "poison inserted", "deleted again", "poison trained in", "then deleted", "clean, other seed")


def flipped(split: Split, seed: int, count: int, positives: bool) -> tuple[Split, Any, Any]:
    """The training set with flipped labels; the numbers of its clean and of its flipped rows."""
    order = np.random.default_rng(seed).permutation(len(split))
    chosen = order[split.y[order] == 1] if positives else order
    rows = np.sort(chosen[:count])
    y = split.y.copy()
    y[rows] = 1 - y[rows]
    return Split(split.title, split.X, y, split.X_test, split.y_test), np.setdiff1d(order, rows), rows


def poisoning_trial(
    split: Split, seed: int, count: int, positives: bool, **options: Any
) -> dict[str, tuple[float, float, float]]:
    """Of each model: accuracy, share of the gap of the poisoned model that is closed, agreement with the clean one."""
    data, clean, rows = flipped(split, seed, count, positives)
    said = {}
    model = kit.fitted(data, clean, **options)
    said["clean"] = kit.predicted(model, split)
    said["poison inserted"] = kit.predicted(kit.add(model, data, rows), split)
    kit.delete(model, rows)
    said["deleted again"] = kit.predicted(model, split)
    model = kit.fitted(data, **options)
    said["poison trained in"] = kit.predicted(model, split)
    kit.delete(model, rows)
    said["then deleted"] = kit.predicted(model, split)
    said["clean, other seed"] = kit.predicted(kit.fitted(data, clean, **{**options, "random_state": 1}), split)
    said["LightGBM, clean"] = kit.predicted(kit.lightgbm(data, clean), split)
    said["LightGBM, poisoned"] = kit.predicted(kit.lightgbm(data), split)
    accuracy = {name: float(np.mean(values == split.y_test)) for name, values in said.items()}
    found = {}
    for name, values in said.items():
        start = accuracy["poison trained in" if name == "then deleted" else "poison inserted"]
        gap = accuracy["clean"] - start
        closed = (accuracy[name] - start) / gap if gap else float("nan")
        found[name] = accuracy[name], closed, float(np.mean(values == said["clean"]))
    return found


def poisoning(request: Request) -> None:
    """6,000 rows with flipped labels are inserted into a model of Adult and deleted again.

    Two choices of rows: any, and only rows with an income above 50K (said to be below), which does more harm. The
    controls: the poisoned model as it is (doing nothing), and the clean rows retrained with another seed.
    """
    for name in request.sets("adult"):
        split = kit.load(name)
        rows = []
        for positives, which in ((False, "any"), (True, "> 50K only")):
            for mode in request.derivatives or ["bounded", "retrained", "never"]:
                seeds, options = range(request.seeds), kit.options_of(mode)
                trials = [poisoning_trial(split, s, FLIPPED, positives, **options) for s in seeds]
                for model in trials[0]:
                    accuracy, closed, same = (np.array([t[model][part] for t in trials]) for part in range(3))
                    scaled = kit.mean_and_error(accuracy, 100.0), kit.mean_and_error(closed, 100.0, 1)
                    rows.append([which, mode, model, *scaled, kit.mean_and_error(same, 1.0, 4)])
                    progress(*rows[-1])
        majority = 100 * kit.trivial(split)
        note = f"{FLIPPED:,} rows, {request.seeds} seeds; accuracy of the majority class {majority:.2f}."
        header = ["rows flipped", "derivatives", "model", "accuracy %", "gap closed %", "agreement with clean model"]
        show(f"Label-flip poisoning, {split.title}", header, rows, note)


CUMULATIVE_MODELS = ("updated", "retrained", "LightGBM", "first model")
#: LightGBM with one bin less; batches of 5 %.
CONTROL, BATCHES = "LightGBM, 254 bins", 20
#: Table 7 of the paper: mean squared error in thousandths (GlobalTemperatures) at 10 %, 50 %, 100 %, 50 %, 10 %.
CUMULATIVE_PAPER = "GlobalTemperatures 4.19, 1.96, 1.79, 2.08, 3.61; WebTraffic 4.10, 2.91, 2.90, 3.12, 4.43"


def steps(parts: list[Any], grow_first: bool) -> Iterator[tuple[str, Any, Any]]:
    """Operation, its rows, and all rows after it; the last part added is the first removed."""
    for up in (grow_first, not grow_first):
        for i in range(1, len(parts)) if up else range(len(parts) - 1, 0, -1):
            live = np.sort(np.concatenate(parts[: i + 1] if up else parts[:i]))
            yield ("add" if up else "delete"), parts[i], live


def walk(
    split: Split, parts: list[Any], grow_first: bool, compared: Collection[int] | None, control: bool, **options: Any
) -> list[tuple[float, dict[str, float]]]:
    """Share of the rows and quality of every model, at the start and after each step."""
    retrained: dict[int, dict[str, float]] = {}  # by how many rows are live: these are the same ones on the way back
    start = np.sort(parts[0] if grow_first else np.concatenate(parts))
    model = kit.fitted(split, start, **options)
    first = kit.quality(model, split)
    found = [(len(start) / len(split), {"updated": first, "first model": first})]
    for number, (operation, rows, live) in enumerate(steps(parts, grow_first), 1):
        if operation == "add":
            kit.add(model, split, rows)
        else:
            kit.delete(model, rows)
        scores = {"updated": kit.quality(model, split), "first model": first}
        if compared is None or number in compared:
            if len(live) not in retrained:
                models = {"retrained": kit.fitted(split, live, **options), "LightGBM": kit.lightgbm(split, live)}
                if control:
                    models[CONTROL] = kit.lightgbm(split, live, max_bin=kit.BINS - 1)
                retrained[len(live)] = {name: kit.quality(one, split) for name, one in models.items()}
            scores |= retrained[len(live)]
        found.append((len(live) / len(split), scores))
    return found


def batches(request: Request) -> None:
    """5 % -> 100 % -> 5 % in batches (Figure 3).

    Beside the updated model at every size: ours retrained on the same rows, LightGBM on the same rows, and the first
    model left as it is (doing nothing).
    """
    rows: list[list[str]] = []
    turn, end = BATCHES - 1, 2 * (BATCHES - 1)
    for name in request.sets("pendigits"):
        split = kit.load(name)
        for grow_first in (True, False):
            title = "5 % -> 100 % -> 5 %" if grow_first else "100 % -> 5 % -> 100 %"
            for mode in request.derivatives or ["bounded", "retrained", "never"]:
                walks = []
                for seed in range(request.seeds):
                    parts = np.array_split(np.random.default_rng(seed).permutation(len(split)), BATCHES)
                    walks.append(walk(split, parts, grow_first, (turn, end), False, **kit.options_of(mode)))
                for step in (turn, end):
                    scores = [[w[step][1][model] for w in walks] for model in CUMULATIVE_MODELS]
                    gap = [w[step][1]["updated"] - w[step][1]["retrained"] for w in walks]
                    cells = [kit.mean_and_error(values, 100.0) for values in (*scores, gap)]
                    rows.append([split.title, title, mode, f"{100 * walks[0][step][0]:.0f} %", *cells])
                    progress(*rows[-1])
    header = ["data", "path", "derivatives", "at", *CUMULATIVE_MODELS, "updated - retrained"]
    note = f"Accuracy in per cent, {request.seeds} orders of the rows; retrain: never, only updates."
    show("Batch addition and removal", header, rows, note)


def tenths(request: Request) -> None:
    """Chronological tenths added, then removed (Table 7), beside the same models as in ``batches``.

    Each seed draws other test rows and other split candidates; a second LightGBM, of one bin less, shows how far two
    models of the same quality are apart.
    """
    gaps = {"updated - LightGBM": "updated", "retrained - LightGBM": "retrained", f"{CONTROL} - LightGBM": CONTROL}
    for name in request.sets(*kit.SERIES):
        splits = [kit.SERIES[name](kit.SPLIT_SEED + seed) for seed in range(request.seeds)]
        scale = 1e3 if splits[0].regression else 100.0
        for mode in request.derivatives or [kit.DEFAULT]:
            walks = []
            for seed, split in enumerate(splits):
                parts = np.array_split(np.arange(len(split)), 10)
                walks.append(walk(split, parts, True, None, True, random_state=seed, **kit.options_of(mode)))
                progress(split.title, mode, f"seed {seed}")
            apart = {
                title: scale * np.array([[s[model] - s["LightGBM"] for _, s in found[1:]] for found in walks])
                for title, model in gaps.items()
            }
            rows = []
            for step, (share, scores) in enumerate(walks[0]):
                what = "train" if not step else "add" if step < 10 else "delete"
                cells = [
                    f"{scale * np.mean([found[step][1][model] for found in walks]):.2f}" if model in scores else ""
                    for model in CUMULATIVE_MODELS
                ]
                cells += [kit.mean_and_error(values[:, step - 1]) if step else "" for values in apart.values()]
                rows.append([f"{what} 10 %", f"{100 * share:.0f} %", *cells])
            summary = "; ".join(f"{title}: {_spread(values)}" for title, values in apart.items())
            unit = "Mean squared error in thousandths" if splits[0].regression else "Accuracy in per cent"
            bins = "latest training" if mode == kit.DEFAULT else "first tenth"
            note = f"{unit}, mean of {request.seeds} seeds with its standard error; the bins are those of the {bins}. "
            note += f"{summary}."
            note += f" Paper, at 10, 50, 100, 50, 10 %: {CUMULATIVE_PAPER}." if splits[0].regression else ""
            header = ["step", "rows", *CUMULATIVE_MODELS, *gaps]
            show(f"Chronological tenths, {splits[0].title}, {mode}", header, rows, note)


def _spread(gaps: npt.NDArray[np.float64]) -> str:
    steps = gaps.mean(axis=0)
    text = f"{kit.mean_and_error(gaps.mean(axis=1))}, steps from {steps.min():+.2f} to {steps.max():+.2f}"
    return f"{text}, those of single seeds from {gaps.min():+.2f} to {gaps.max():+.2f}"
