"""Leave-one-out models and intervals of exact forests, beside training each model again.

    python benchmarks/attribution.py [leave-one-out] [without] [threads] [intervals] [history] [shapley] [mislabelled]
        [mapie] [--rows 32561] [--checked 50] [--trainings 5] [--trees 100] [--examples 1000] [--players 1000]
        [--few 80] [--seeds 5]

``leave-one-out`` computes all leave-one-out models of Adult with the predictions of 1,000 validation rows; some of them
are compared with training without the row, and all trainings extrapolated from a few. ``without`` has a block without
one row, and what its parts take, of ``checked`` blocks. ``threads`` has one and two threads by wall time, and needs a
quiet machine. ``intervals`` has those of the jackknife+ of three real sets, and of 10,000 drawn rows, with their
coverage at alpha = .1, beside scikit-learn's forest, trained again without some examples, and extrapolated. ``history``
has how far leave-one-out of learners that depend on the order of their examples is from training without the row.

The others want pyDVL, cleanlab and MAPIE, of which pyDVL takes an older NumPy than raydt does: an environment with
``pip install -e . scikit-learn pyDVL cleanlab mapie "pyarrow<22"``. ``shapley`` has the samplers of pyDVL for the
utility of raydt, the accuracy of the forest trained on a subset: errors and seconds on ``few`` rows (0: not at all),
and what each takes for the standard error of raydt on ``players`` rows. ``mislabelled`` finds flipped labels of five
real sets, and wrong numbers of three. ``mapie`` has jackknife+ and CV+ of three real sets beside MAPIE with the same
forest, and with scikit-learn's.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from harness import arguments, print_machine, progress, read, show, timed
from sklearn.ensemble import RandomForestRegressor

from raydt import (
    ExactForestClassifier,
    ExactForestRegressor,
    FullyDynamicTreeClassifier,
    OnlineGradientBoostingClassifier,
)
from raydt.attribution import JackknifePlusRegressor, data_values, label_quality, leave_one_out
from raydt.attribution.leave_one_out import groups_of
from raydt.attribution.values import Subsets, strata_of
from raydt.parallel import limited

VALIDATION = 1000
#: Real sets with numbers as labels, and the columns that are left out.
SETS = {"abalone": (), "wine_quality_white": (), "beijing_pm25": ("time",)}
#: Real sets with classes.
OF_CLASSES = ("adult_train", "electricity", "phishing", "image_segments", "optdigits_train")
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


def left_out_once(rows: int, trees: int, blocks: int) -> None:
    """A block without one row in which all validation rows are predicted twice: what each part of it takes."""
    X, y, X_val, _, categorical = adult()
    X, y = X[:rows], y[:rows]
    options = {"n_estimators": trees, "categorical_features": categorical, "n_jobs": 1}
    for _ in range(2):  # the first training compiles
        seconds, model = timed(lambda: ExactForestClassifier(**options).fit(X, y))
    parts = []
    for one in np.random.default_rng(0).choice(len(y), blocks + 1, replace=False).tolist():
        clock = [time.process_time()]
        with model.without([one]):
            for _ in range(2):
                clock.append(time.process_time())
                model.predict_proba(X_val)
            clock.append(time.process_time())
        clock.append(time.process_time())
        parts.append(1e3 * np.diff(clock))
    enter, first, again, leave = np.transpose(parts[1:])  # before, the validation rows were not known
    lines = {
        "all of it, rows predicted once": enter + first + leave,
        "enter and leave": enter + leave,
        "known predictions": again,
        "trees walked down and built": first - again,
    }
    show(
        f"Adult, {len(y):,} rows, {trees} trees: without([id]), {len(X_val):,} rows predicted, {blocks} blocks",
        ["ms of processor time", "median", "mean", "90 %"],
        [[name, *(f"{one:.2f}" for one in (np.median(ms), np.mean(ms), np.percentile(ms, 90)))]
         for name, ms in lines.items()],
        f"A training takes {seconds:.2f} s.",
    )  # fmt: skip


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


def as_numbers(frame: Any) -> tuple[Any, list[int] | None]:
    """Features as numbers, and which of them are categories."""
    text = [c for c in frame if not hasattr(frame[c].dtype, "itemsize") or frame[c].dtype.kind not in "fiu"]
    frame = frame.assign(**{c: frame[c].astype("category").cat.codes for c in text}).astype(float)
    return frame.to_numpy(), [frame.columns.get_loc(c) for c in text] or None


def intervals(examples: int, trees: int = 50, alpha: float = 0.1) -> None:
    lines = []
    for name, dropped in {**SETS, DRAWN: ()}.items():
        examples = DRAWN_EXAMPLES if name == DRAWN else examples
        frame = drawn(examples + VALIDATION) if name == DRAWN else read(name).to_pandas().drop(columns=list(dropped))
        y = frame.pop("y").to_numpy().astype(float)
        rows, places = as_numbers(frame)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[:examples], order[examples : examples + VALIDATION]
        X, X_test = rows[train], rows[test]
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


def history(examples: int, checked: int = 20) -> None:
    """Some rows of three real sets are left out, one at a time, by deletion and by training without them."""
    from scipy.stats import spearmanr

    learners: dict[str, Any] = {
        "exact forest": lambda places: ExactForestClassifier(n_estimators=50, categorical_features=places),
        "GBDT": lambda places: OnlineGradientBoostingClassifier(max_iter=50, categorical_features=places),
        "GBDT, retrain: always": lambda places: OnlineGradientBoostingClassifier(
            max_iter=50, categorical_features=places, retrain="always"
        ),
        "FuDyADT": lambda places: FullyDynamicTreeClassifier(categorical_features=places),
    }
    lines = []
    for name in OF_CLASSES[:3]:
        frame = read(name).to_pandas().sample(frac=1.0, random_state=0)[: examples + VALIDATION]
        labels = frame.pop("y").astype(str).to_numpy()
        rows, places = as_numbers(frame)
        X, y, X_val, y_val = rows[:examples], labels[:examples], rows[examples:], labels[examples:]
        every = np.arange(examples)
        chosen = np.random.default_rng(0).choice(examples, checked, replace=False)
        truth = np.searchsorted(np.unique(labels), y_val)
        for learner, made in learners.items():
            model = made(places).fit(X, y, ids=every)
            asked = {"ids": chosen, "scoring": "neg_brier_score", "return_predictions": "predict_proba"}
            found = leave_one_out(model, X_val, y_val, **asked)
            other, values, shares = 0, [], []
            for place, one in enumerate(chosen.tolist()):
                kept = np.delete(every, one)
                anew = made(places).fit(X[kept], y[kept], ids=kept).predict_proba(X_val)
                values.append(found.score + float(np.mean((anew[np.arange(len(truth)), truth] - 1.0) ** 2)))
                shares.append(float(np.abs(anew - found.predictions[place])[:, 0].mean()))
                other += int((anew.argmax(axis=1) != found.predictions[place].argmax(axis=1)).sum())
            size, off = float(np.abs(values).mean()), float(np.abs(found.values - values).mean())
            rank = (
                "" if np.ptp(found.values) == 0 or np.ptp(values) == 0 else f"{spearmanr(found.values, values)[0]:.2f}"
            )
            of_all = other / checked / len(X_val)
            lines.append([name, learner, f"{of_all:.2%}", f"{np.mean(shares):.1e}", f"{size:.1e}", f"{off:.1e}", rank])
    show(
        f"{checked} of {examples:,} rows left out, {VALIDATION:,} validation rows: by deletion, against training",
        ["", "", "other labels", "mean error of a share", "mean value", "its mean error", "rank correlation"],
        lines,
        "Values are of the Brier score; the sizes and errors are absolute.",
    )


class ForestOfIds(ExactForestClassifier):
    """An exact forest whose first column is the id, so that a subset has the model that raydt's walk has."""

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(X[:, 1:], y, ids=X[:, 0].astype(np.int64))

    def score(self, X: Any, y: Any) -> float:
        return super().score(X[:, 1:], y)


def shapley(players: int, trees: int, few: int, repeats: int = 4) -> None:
    """Errors and seconds of all samplers on ``few`` rows, then those of ``players`` rows at equal standard error."""
    from pydvl import valuation as pydvl
    from pydvl.valuation.samplers import stratified

    X, y, X_val, y_val, categorical = adult()
    options = {"n_estimators": trees, "categorical_features": categorical, "n_jobs": 1}

    def sides(n: int) -> tuple[Any, Any, Any]:
        """The model of raydt, pyDVL's training set, and a utility of it that counts its evaluations."""
        model = ExactForestClassifier(**options).fit(X[:n], y[:n], ids=np.arange(n))
        rows = pydvl.Dataset(np.column_stack([np.arange(n), X[:n]]), y[:n])
        val = pydvl.Dataset(np.column_stack([np.zeros(len(X_val)), X_val]), y_val)
        nothing = float((y_val == model.classes_[0]).mean())  # of no row, as raydt has it
        counted = []

        def score(fitted: Any, X: Any, y: Any) -> float:
            counted.append(1)
            return fitted.score(X, y)

        scorer = pydvl.SupervisedScorer(score, test_data=val, default=nothing)
        utility = pydvl.ModelUtility(ForestOfIds(**options), scorer, show_warnings=False, catch_errors=False)
        return model, rows, (utility.with_dataset(rows), counted)

    def by_size(exponent: float) -> Any:
        """Sizes of subsets by chance, proportional to a power: unbiased for any number of samples."""
        sizes, forever = stratified.PowerLawSampleSize(exponent), pydvl.SequentialIndexIteration
        chance = stratified.RandomSizeIteration
        return lambda seed: stratified.StratifiedSampler(sizes, chance, index_iteration=forever, seed=seed)

    def measured_throughout() -> None:
        model, rows, (utility, counted) = sides(few)
        reference = data_values(model, X_val, y_val, samples=300, random_state=10**6)
        samplers = {
            "permutations": (lambda seed: pydvl.PermutationSampler(seed=seed), 2),
            "antithetic permutations": (lambda seed: pydvl.AntitheticPermutationSampler(seed=seed), 2),
            "truncated permutations, 1 %": (
                lambda seed: pydvl.PermutationSampler(pydvl.RelativeTruncation(0.01), seed=seed), 2
            ),
            "stratified, (1 + k)^-1": (by_size(-1.0), 10),
            "stratified, (1 + k)^-.5": (by_size(-0.5), 10),
            "VRDS, 40 samples": (lambda seed: pydvl.VRDSSampler(40, seed=seed), 40),
        }  # fmt: skip
        found: dict[str, list[Any]] = {}
        for seed in range(repeats):
            took, own = timed(lambda: data_values(model, X_val, y_val, samples=2, random_state=seed))  # noqa: B023
            found.setdefault("raydt, 2 samples", []).append((took, 0, own.values))
            for name, (sampler, updates) in samplers.items():
                counted.clear()
                method = pydvl.ShapleyValuation(utility, sampler(seed), pydvl.MinUpdates(updates), progress=False)
                took, _ = timed(lambda: method.fit(rows))  # noqa: B023
                found.setdefault(f"pyDVL, {name}", []).append((took, len(counted), method.result.values.copy()))
        lines, own_price = [], None
        for name, runs in found.items():
            seconds, evaluations = (float(np.mean([run[side] for run in runs])) for side in (0, 1))
            error = float(np.sqrt(np.mean([(run[2] - reference.values) ** 2 for run in runs])))
            own_price = seconds * error**2 if own_price is None else own_price
            lines.append([name, f"{evaluations:.0f}" if evaluations else "", f"{error:.2e}", f"{seconds:.2f}",
                          f"{seconds * error**2 / own_price:.1f}"])  # fmt: skip
        show(
            f"Shapley values of {few} rows of Adult, accuracy of {VALIDATION:,} rows, {trees} trees, {repeats} runs",
            ["", "evaluations", "root mean squared error", "s of processor time", "s at equal error, raydt = 1"],
            lines,
            f"The errors are those from raydt's 300 samples, whose own is {np.sqrt(np.mean(reference.errors**2)):.1e}; "
            f"the root mean square of the values is {np.sqrt(np.mean(reference.values**2)):.1e}.",
        )

    if few:
        measured_throughout()
    model, _, (utility, _) = sides(players)
    data_values(model, X_val, y_val, ids=[0], samples=1)  # compiles
    asked = {"samples": 2, "random_state": 1, "progress": partial(progress, "samples, error:")}
    took, own = timed(lambda: data_values(model, X_val, y_val, **asked))
    progress(f"raydt: {took:.0f} s of processor time")
    variance = float(np.mean(own.errors**2))
    subsets = Subsets(model, X_val, y_val, groups_of(model, None, None), None)
    draws, squares, seconds = np.random.default_rng(0), np.zeros(players), []
    for sizes in strata_of(players):  # of contributions, by size
        size = int(draws.integers(sizes.start, sizes.stop))
        progress("contributions to", size, "others")
        squares[sizes.start : sizes.stop] = np.mean(subsets.added(draws.permutation(players), size, 400) ** 2)
    points = sorted({*(1 << i for i in range(players.bit_length())), players})
    for size in points:
        some = [draws.choice(players, size, replace=False) for _ in range(3)]
        each = [timed(lambda one=one: utility(pydvl.types.Sample(None, one)))[0] for one in some]
        seconds.append(float(np.median(each)))
        progress("trainings on", size, "rows")
    k = np.arange(players)
    one = np.interp(k + 1, points, seconds)  # to train on k + 1 rows, and score
    both = one + np.interp(np.maximum(k, 1), points, seconds) * (k > 0)

    def at_our_error(of_a_sample: float, samples_variance: float) -> float:
        """Seconds of all rows until their mean variance is ours."""
        return players * of_a_sample * samples_variance / variance

    lines = [["raydt, 2 samples", f"{took:,.0f}", ""]]
    rivals = {"permutations": at_our_error(one.mean(), squares.mean())}
    for exponent in (-1.0, -0.5):
        share = (1.0 + k) ** exponent
        share /= share.sum()
        name = f"stratified, (1 + k)^{exponent:g}"
        rivals[name] = at_our_error((share * both).sum(), (squares / share).sum() / players**2)
    varies = (k > 0) & (k < players - 1)  # of no others, and of all, there is one subset, which one sample tells
    rivals["one training for each contribution, any allocation"] = at_our_error(
        1.0, (np.sqrt(squares * one * varies).sum() / players) ** 2
    )
    lines += [[f"pyDVL, {name}", f"{theirs:,.0f}", f"{theirs / took:,.0f}"] for name, theirs in rivals.items()]
    show(
        f"{players:,} rows of Adult, {trees} trees: s of processor time for a standard error of {variance**0.5:.1e}",
        ["", "s", "ratio"],
        lines,
        f"Theirs are extrapolated: a training with its score of each of {len(points)} sizes, the mean square of 400 "
        f"contributions in each of {len(strata_of(players))} strata, and the formula of the variance of each sampler. "
        f"Values of raydt: root mean square {np.sqrt(np.mean(own.values**2)):.1e}, sum {own.values.sum():.4f}.",
    )


def with_wrong_labels(name: str, examples: int, seed: int) -> tuple[Any, ...]:
    """Features, labels of which one in ten is wrong, which are, validation rows, and categories of a real set."""
    dropped = list(SETS.get(name, ()))
    frame = read(name).to_pandas().drop(columns=dropped).sample(frac=1.0, random_state=seed)[: examples + VALIDATION]
    labels = frame.pop("y").to_numpy()
    if name not in SETS:
        labels = np.unique(labels.astype(str), return_inverse=True)[1]
    every, places = as_numbers(frame)
    draws, y = np.random.default_rng(seed), labels[:examples].copy()
    wrong = draws.choice(examples, examples // 10, replace=False)
    if name in SETS:  # the label of another row
        y[wrong] = draws.permutation(labels[:examples])[: len(wrong)]
    else:
        classes = labels.max() + 1
        y[wrong] = (y[wrong] + draws.integers(1, classes, len(wrong))) % classes
    return every[:examples], y, y != labels[:examples], every[examples:], labels[examples:], places


def mislabelled(examples: int, trees: int, seeds: int, samples: int = 3) -> None:
    """One label in ten is another one; the validation rows, which only values see, are right. Means over seeds."""
    from cleanlab.rank import get_label_quality_scores
    from cleanlab.regression.rank import get_label_quality_scores as of_numbers
    from pydvl.valuation import Dataset, KNNShapleyValuation
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler

    areas: dict[str, dict[str, list[float]]] = {}
    spent: dict[str, float] = {}
    found: dict[str, list[tuple[float, float]]] = {}

    def area(who: str, name: str, wrong: Any, scores: Any, seconds: float = 0.0) -> None:
        areas.setdefault(who, {}).setdefault(name, []).append(float(roc_auc_score(wrong, -scores)))
        spent[who] = spent.get(who, 0.0) + seconds

    def variants(who: str, name: str, y: Any, wrong: Any, shares: Any) -> None:
        for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
            area(f"{who}: {method}", name, wrong, get_label_quality_scores(y, shares, method=method))
        for method in ("self_confidence", "normalized_margin"):
            scores = get_label_quality_scores(y, shares, method=method, adjust_pred_probs=True)
            area(f"{who}: {method}, by class", name, wrong, scores)

    for name in OF_CLASSES:
        for seed in range(seeds):
            X, y, wrong, X_val, y_val, places = with_wrong_labels(name, examples, seed)
            options = {"n_estimators": trees, "categorical_features": places, "n_jobs": 1}
            took, model = timed(lambda: ExactForestClassifier(**options).fit(X, y))  # noqa: B023
            seconds, quality = timed(lambda: label_quality(model))  # noqa: B023
            area("label_quality", name, wrong, quality.quality, seconds + took)
            suspect = quality.suspect
            found.setdefault(name, []).append((suspect[wrong].mean(), wrong[suspect].mean()))
            peer = RandomForestClassifier(trees, n_jobs=1, random_state=0, oob_score=True)
            plain = RandomForestClassifier(trees, n_jobs=1, random_state=0)
            took, shares = timed(lambda: cross_val_predict(plain, X, y, method="predict_proba"))  # noqa: B023
            area("cleanlab, scikit-learn's forest, 5 folds", name, wrong, get_label_quality_scores(y, shares), took)
            variants("scikit-learn's forest, 5 folds", name, y, wrong, shares)
            variants("leave-one-out of raydt", name, y, wrong, quality.shares)
            bag = np.nan_to_num(peer.fit(X, y).oob_decision_function_)
            area("scikit-learn's forest, out of bag: self_confidence", name, wrong, bag[np.arange(len(y)), y])
            for cv in (5, 10):
                area(f"raydt, {cv} folds: self_confidence", name, wrong, label_quality(model, cv).quality)
            scale = StandardScaler().fit(X)
            values = {
                "leave-one-out value (log loss)": lambda: leave_one_out(
                    model, X_val, y_val, scoring="neg_log_loss"  # noqa: B023
                ).values,
                f"Shapley value (accuracy, {samples} samples)": lambda: data_values(
                    model, X_val, y_val, samples=samples  # noqa: B023
                ).values,
                "KNN-Shapley of pyDVL": lambda: KNNShapleyValuation(
                    KNeighborsClassifier(5), Dataset(scale.transform(X_val), y_val), progress=False  # noqa: B023
                ).fit(Dataset(scale.transform(X), y)).result.values,  # noqa: B023
            }  # fmt: skip
            for who, call in values.items():
                took, scores = timed(call)
                area(who, name, wrong, scores, took)
    head = ["", *OF_CLASSES, "mean", "s"]
    lines = [
        [who, *(f"{np.mean(by[name]):.3f}" for name in OF_CLASSES),
         f"{np.mean([np.mean(one) for one in by.values()]):.4f}",
         f"{spent[who] / len(by[OF_CLASSES[0]]):.1f}" if spent[who] else ""]
        for who, by in areas.items()
    ]  # fmt: skip
    both = np.mean([np.mean(one, axis=0) for one in found.values()], axis=0)
    show(
        f"Flipped labels among {examples:,}, {seeds} seeds: area under the curve; {trees} trees",
        head,
        lines,
        f"Of the flipped labels {both[0]:.1%} are suspect, and of the suspect ones {both[1]:.1%} are flipped.",
    )
    areas.clear()
    for name in SETS:
        for seed in range(seeds):
            X, y, wrong, _, _, places = with_wrong_labels(name, examples, seed)
            own = ExactForestRegressor(n_estimators=trees, categorical_features=places, n_jobs=1).fit(X, y)
            area("label_quality", name, wrong, label_quality(own).quality)
            predicted = cross_val_predict(RandomForestRegressor(trees, n_jobs=1, random_state=0), X, y)
            for method in ("residual", "outre"):
                area(f"cleanlab, {method}", name, wrong, of_numbers(y, predicted, method=method))
    show(
        f"Numeric labels of other rows among {examples:,}, {seeds} seeds: area under the curve; {trees} trees",
        ["", *SETS, "mean"],
        [
            [who, *(f"{np.mean(one):.3f}" for one in by.values()), f"{np.mean([*by.values()]):.4f}"]
            for who, by in areas.items()
        ],
    )


def mapie(examples: int, trees: int = 50) -> None:
    from mapie.regression import CrossConformalRegressor
    from sklearn.model_selection import LeaveOneOut

    lines = []
    for name, dropped in SETS.items():
        frame = read(name).to_pandas().drop(columns=list(dropped))
        y = frame.pop("y").to_numpy().astype(float)
        rows, places = as_numbers(frame)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[:examples], order[examples : examples + VALIDATION]
        exact = ExactForestRegressor(n_estimators=trees, categorical_features=places, n_jobs=1)
        plain = RandomForestRegressor(trees, n_jobs=1, random_state=0)

        def of_raydt(cv: Any) -> Any:
            own = JackknifePlusRegressor(exact, cv).fit(rows[train], y[train])  # noqa: B023
            return own.predict_interval(rows[test], 0.1)  # noqa: B023

        def of_mapie(peer: Any, cv: Any) -> Any:
            model = CrossConformalRegressor(peer, confidence_level=0.9, cv=LeaveOneOut() if cv is None else cv)
            model.fit_conformalize(rows[train], y[train])  # noqa: B023
            return model.predict_interval(rows[test])[1][:, :, 0]  # noqa: B023

        of_raydt(3)
        for cv in (None, 10):
            line = [name, "jackknife+" if cv is None else f"CV+, {cv} folds"]
            for side in (lambda: of_raydt(cv), lambda: of_mapie(exact, cv), lambda: of_mapie(plain, cv)):  # noqa: B023
                took, ends = timed(side)
                inside = float(((ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1])).mean())
                line.append(f"{took:.1f} / {inside:.3f} / {np.median(ends[:, 1] - ends[:, 0]) / y.std():.2f}")
            lines.append(line)
    show(
        f"{examples:,} examples, {VALIDATION:,} new rows, alpha = .1, {trees} trees: s / coverage / width by deviation",
        ["", "", "raydt", "MAPIE, exact forest", "MAPIE, scikit-learn's forest"],
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
        players=1000,
        few=80,
        seeds=5,
    )
    print_machine("scikit-learn", "pyDVL", "cleanlab", "mapie")
    if "leave-one-out" in given.tables:
        all_left_out(given.rows, given.trees, given.checked, given.trainings)
    if "without" in given.tables:
        left_out_once(given.rows, given.trees, given.checked)
    if "threads" in given.tables:
        in_threads(given.rows, given.trees)
    if "intervals" in given.tables:
        intervals(given.examples)
    if "history" in given.tables:
        history(given.examples)
    if "shapley" in given.tables:
        shapley(given.players, given.trees, given.few)
    if "mislabelled" in given.tables:
        mislabelled(given.examples, given.trees, given.seeds)
    if "mapie" in given.tables:
        mapie(given.examples)
