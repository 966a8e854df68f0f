"""Leave-one-out models and intervals of exact forests, beside training each model again.

    python benchmarks/attribution.py [leave-one-out] [threads] [intervals]
        [--rows 32561] [--checked 50] [--trainings 5] [--trees 100] [--examples 1000]

``leave-one-out`` computes all leave-one-out models of Adult with the predictions of 1,000 validation rows; some of them
are compared with training without the row, and all trainings extrapolated from a few. ``threads`` has one and two
threads by wall time, and needs a quiet machine. ``intervals`` has those of the jackknife+ of three real sets, and of
10,000 drawn rows, with their coverage at alpha = .1, beside scikit-learn's forest, trained again without some examples,
and extrapolated.
"""

import time
from typing import Any

import numpy as np
from harness import arguments, print_machine, read, show, timed
from sklearn.ensemble import RandomForestRegressor

from raydt import ExactForestClassifier, ExactForestRegressor
from raydt.attribution import JackknifePlusRegressor, leave_one_out
from raydt.parallel import limited

VALIDATION = 1000
#: Real sets with numbers as labels, and the columns that are left out.
SETS = {"abalone": (), "wine_quality_white": (), "beijing_pm25": ("time",)}
#: A table that is drawn, of ten numbers.
DRAWN, DRAWN_EXAMPLES = "drawn", 10_000


def adult() -> tuple[Any, Any, Any, Any, Any]:
    """Training and validation rows of Adult, categories as numbers, and which columns are categories."""
    parts = [read(f"adult_{part}").to_pandas() for part in ("train", "test")]
    labels = [part.pop("y").astype(str).str.strip(".").to_numpy() for part in parts]
    text = [not np.issubdtype(kind, np.number) if isinstance(kind, np.dtype) else True for kind in parts[0].dtypes]
    columns = []
    for name, category in zip(parts[0], text, strict=True):
        both = [part[name].astype(str if category else float).to_numpy() for part in parts]
        known = np.unique(np.concatenate(both))
        columns.append([np.searchsorted(known, one).astype(float) for one in both] if category else both)
    X, X_val = (np.column_stack([column[side] for column in columns]) for side in (0, 1))
    return X, labels[0], X_val[:VALIDATION], labels[1][:VALIDATION], np.flatnonzero(text).tolist()


def all_left_out(rows: int, trees: int, checked: int, trainings: int) -> None:
    X, y, X_val, y_val, categorical = adult()
    X, y = X[:rows], y[:rows]
    options = {"n_estimators": trees, "categorical_features": categorical, "n_jobs": 1}

    def trained(kept: Any) -> Any:
        return ExactForestClassifier(**options).fit(X[kept], y[kept], ids=kept)

    every = np.arange(len(y))
    model = trained(every)
    before = model.digest()
    leave_one_out(model, X_val, y_val, ids=[0])  # compiles
    seconds, found = timed(lambda: leave_one_out(model, X_val, y_val, scoring="neg_log_loss"))
    assert model.digest() == before
    chosen = np.random.default_rng(0).choice(len(y), checked, replace=False)
    without = leave_one_out(model, X_val, y_val, ids=chosen, return_predictions="predict_proba").predictions
    differences, train = 0, []
    for place, one in enumerate(chosen.tolist()):
        took, anew = timed(lambda: trained(np.delete(every, one)))  # noqa: B023
        train.append(took)
        differences += not np.array_equal(anew.predict_proba(X_val), without[place])
    each, every_training = seconds / len(y), float(np.median(train[: max(1, trainings)])) * len(y)
    show(
        f"Adult, {len(y):,} rows, {trees} trees: all leave-one-out models, with {len(X_val):,} predictions of each",
        ["", "s of processor time", "ms a model", "ratio"],
        [
            ["leave_one_out", f"{seconds:.1f}", f"{1e3 * each:.2f}", ""],
            ["training each, extrapolated", f"{every_training:,.0f}", f"{1e3 * every_training / len(y):,.0f}",
             f"{every_training / seconds:.0f}"],
        ],
        f"{checked} models compared with training without the row: {differences} differences; values from "
        f"{found.values.min():.2g} to {found.values.max():.2g} of a log loss of {-found.score:.4f}.",
    )  # fmt: skip
    took = []
    for one in chosen.tolist():
        began = time.process_time()
        with model.without([one]):
            model.predict_proba(X_val)
        took.append(time.process_time() - began)
    print(f"\nwithout([id]) and predict_proba of {len(X_val):,} rows: {1e3 * float(np.median(took[1:])):.2f} ms")


def in_threads(rows: int, trees: int) -> None:
    X, y, X_val, y_val, categorical = adult()
    model = ExactForestClassifier(n_estimators=trees, categorical_features=categorical).fit(X[:rows], y[:rows])
    ids = np.arange(0, min(rows, len(y)), 8)
    lines, values = [], []
    leave_one_out(model, X_val, y_val, ids=ids[:8])
    for threads in (1, 2, 1, 2):
        with limited(threads):
            took, found = timed(lambda: leave_one_out(model, X_val, y_val, ids=ids), time.perf_counter)
        values.append(found.values.tobytes())
        lines.append([str(threads), f"{took:.2f}"])
    same = "the same values" if len(set(values)) == 1 else "OTHER VALUES"
    show(f"Adult: {len(ids):,} leave-one-out models, wall time", ["threads", "s"], lines, same)


def drawn(n: int) -> Any:
    """Ten normal numbers, of which four tell the label, with noise of deviation 1."""
    import pandas as pd

    draws = np.random.default_rng(0)
    X = draws.normal(size=(n, 10))
    y = X[:, 0] * 2 + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + draws.normal(size=n)
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(10)]).assign(y=y)


def intervals(examples: int, trees: int = 50, alpha: float = 0.1) -> None:
    lines = []
    for name, dropped in {**SETS, DRAWN: ()}.items():
        examples = DRAWN_EXAMPLES if name == DRAWN else examples
        frame = drawn(examples + VALIDATION) if name == DRAWN else read(name).to_pandas().drop(columns=list(dropped))
        y = frame.pop("y").to_numpy().astype(float)
        text = [c for c in frame if not hasattr(frame[c].dtype, "itemsize") or frame[c].dtype.kind not in "fiu"]
        frame = frame.assign(**{c: frame[c].astype("category").cat.codes for c in text}).astype(float)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[:examples], order[examples : examples + VALIDATION]
        X, X_test = frame.to_numpy()[train], frame.to_numpy()[test]
        places = [frame.columns.get_loc(c) for c in text] or None
        model = JackknifePlusRegressor(
            ExactForestRegressor(n_estimators=trees, categorical_features=places, n_jobs=1)
        ).fit(X, y[train])
        model.predict_interval(X_test[:1], alpha)
        model.estimator_.forget([0], digests=False)
        model.estimator_.partial_fit(X[:1], y[train][:1], ids=[0])  # what was kept of errors is gone
        took, ends = timed(lambda: model.predict_interval(X_test, alpha))  # noqa: B023
        inside = (ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1])
        peer = RandomForestRegressor(trees, n_jobs=1, random_state=0)

        def peer_without(one: int) -> None:
            kept = np.delete(np.arange(len(X)), one)  # noqa: B023
            peer.fit(X[kept], y[train][kept]).predict(np.vstack([X_test, X[[one]]]))  # noqa: B023

        peer_without(0)
        theirs = float(np.median([timed(lambda i=i: peer_without(i))[0] for i in range(5)])) * len(train)
        width = float(np.median(ends[:, 1] - ends[:, 0])) / float(y.std())
        lines.append([name, f"{len(train):,}", f"{took:.1f}", f"{inside.mean():.3f}", f"{width:.2f}",
                      f"{theirs:,.0f}", f"{theirs / took:.0f}"])  # fmt: skip
    show(
        f"Intervals of the jackknife+ at alpha = {alpha:g} for {VALIDATION:,} rows, {trees} trees, s of processor time",
        ["", "examples", "s", "coverage", "width / deviation", "scikit-learn's forest, extrapolated from 5", "ratio"],
        lines,
    )


if __name__ == "__main__":
    given = arguments(
        __doc__,
        tables_={"nargs": "*", "default": ["leave-one-out", "intervals"]},
        rows=32561,
        trees=100,
        checked=50,
        trainings=5,
        examples=1000,
    )
    print_machine("scikit-learn")
    if "leave-one-out" in given.tables:
        all_left_out(given.rows, given.trees, given.checked, given.trainings)
    if "threads" in given.tables:
        in_threads(given.rows, given.trees)
    if "intervals" in given.tables:
        intervals(given.examples)
