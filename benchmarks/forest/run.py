"""The exact forest beside scikit-learn's forests: accuracy, time of training and of deletions, memory.

    python benchmarks/forest/run.py accuracy | deletion | training | memory [--seeds 5] [--only NAME ...]
        [--models NAME ...] [--max-features P]

``accuracy`` trains on the training rows and predicts the test rows: categories by value for the exact forest, as
columns of 0 and 1 for the others, which cannot take them. ``deletion`` deletes one example after the other from a
fitted forest, eagerly and lazily, then many in one call; ``training`` compares the processor time of a training with
ExtraTreesClassifier(n_jobs=1) of the same depth, on the same columns of 0 and 1. Both sides are in one run. ``memory``
counts the bytes of the arrays of a trained forest. Data sets that are not at hand are skipped.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[0] = str(Path(__file__).parents[1])  # where the harness is found

import numpy as np  # noqa: E402 (needs the path)
from harness import DATA, arguments, in_turns, print_machine, read, show, timed  # noqa: E402
from lightgbm import LGBMClassifier  # noqa: E402
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier  # noqa: E402
from sklearn.metrics import roc_auc_score  # noqa: E402

from raydt import ExactForestClassifier, FullyDynamicTreeClassifier, OnlineGradientBoostingClassifier  # noqa: E402
from raydt.examples.updates import DELETE, UpdateBatch  # noqa: E402

TREES, REBUILDS = 100, ("eager", "lazy")
#: Data sets that come as a training and a test file; the last fifth of a drawn order of the others is held out.
SPLIT, WHOLE = ("adult", "heart", "purchase"), "covtype_head10k"
#: Settings of the published tables, other than the defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "adult": {"max_depth": 15, "min_samples_split": 20}, "heart": {"max_depth": 15}, "purchase": {"max_depth": 10},
}  # fmt: skip


class Rows(NamedTuple):
    """Training and test rows: frames with categories as text, columns of 0 and 1, and codes of labels."""

    name: str
    train: Any
    test: Any
    wide_train: Any
    wide_test: Any
    y: Any
    y_test: Any


def data_sets() -> Iterator[Rows]:
    for name in SPLIT:
        files = [f"{name}_{part}" for part in ("train", "test")]
        if all((DATA / f"{file}.parquet").exists() for file in files):
            yield _rows(name, *(read(file).to_pandas() for file in files))
    if (DATA / f"{WHOLE}.parquet").exists():
        whole = read(WHOLE).to_pandas()
        order = np.random.default_rng(0).permutation(len(whole))
        train, test = np.split(order, [len(whole) * 4 // 5])
        yield _rows(WHOLE, whole.iloc[train], whole.iloc[test])
        two = whole.assign(y=whole["y"].astype(str) == "2")
        yield _rows(f"{WHOLE}, 2 against the rest", two.iloc[train], two.iloc[test])


def _rows(name: str, train: Any, test: Any) -> Rows:
    import pandas as pd

    labels = [part["y"].astype(str).str.strip(".") for part in (train, test)]
    known = np.unique(labels[0])
    both = pd.concat([train, test]).drop(columns="y").reset_index(drop=True)
    text = [c for c in both if not pd.api.types.is_numeric_dtype(both[c])]
    both[text] = both[text].astype(str)
    wide, n = pd.get_dummies(both, columns=text).to_numpy(dtype=np.float64), len(train)
    codes = (np.searchsorted(known, part.to_numpy(dtype=str)) for part in labels)
    return Rows(name, both.iloc[:n], both.iloc[n:], wide[:n], wide[n:], *codes)


def ours(rows: Rows, seed: int, **options: Any) -> ExactForestClassifier:
    chosen = {"sample_share": 0.1, **SETTINGS.get(rows.name, {}), **options}
    return ExactForestClassifier(n_estimators=TREES, random_state=seed, **chosen)


def auc(rows: Rows, shares: Any) -> float:
    """AUROC; of several classes the mean of each against the rest."""
    if shares.shape[1] == 2:
        return float(roc_auc_score(rows.y_test, shares[:, 1]))
    return float(roc_auc_score(rows.y_test, shares, multi_class="ovr"))


#: Name in the table, how it is made, and whether it takes columns of 0 and 1.
CONTESTANTS: dict[str, tuple[Callable[[Rows, int], Any], bool]] = {
    **{
        f"exact forest, q = {q:g}": (lambda rows, seed, q=q: ours(rows, seed, sample_share=q), False)
        for q in (0.1, 0.2, 0.5, 1.0)
    },
    "RandomForest": (lambda rows, seed: RandomForestClassifier(TREES, random_state=seed), True),
    "ExtraTrees": (lambda rows, seed: ExtraTreesClassifier(TREES, random_state=seed), True),
    "LightGBM": (lambda rows, seed: LGBMClassifier(num_leaves=20, n_jobs=1, random_state=seed, verbose=-1), True),
    "gbdt": (lambda rows, seed: OnlineGradientBoostingClassifier(random_state=seed), True),
    "one tree (fudyadt)": (lambda rows, seed: FullyDynamicTreeClassifier(), True),
}  # fmt: skip


def accuracy(every: list[Rows], seeds: int, models: list[str]) -> None:
    """Held-out accuracy and AUROC, and the processor time of training."""
    for rows in every:
        lines = []
        for name, (make, wide) in CONTESTANTS.items():
            if models and not name.startswith(tuple(models)):
                continue
            found = []
            for seed in range(1 if "one tree" in name else seeds):
                model = make(rows, seed)
                took, _ = timed(lambda: model.fit(rows.wide_train if wide else rows.train, rows.y))  # noqa: B023
                shares = model.predict_proba(rows.wide_test if wide else rows.test)
                found.append(((shares.argmax(axis=1) == rows.y_test).mean(), auc(rows, shares), took))
            mean, spread, took = np.mean(found, axis=0), np.std(found, axis=0), np.median(found, axis=0)[2]
            lines.append([name, f"{mean[0]:.4f} ± {spread[0]:.4f}", f"{mean[1]:.4f}", f"{took:.2f}"])
        title = f"{rows.name}: {len(rows.y):,} rows, {rows.train.shape[1]} columns, {rows.wide_train.shape[1]} wide"
        show(title, ["", "accuracy", "AUROC", "training, s of processor time"], lines)


def deleted(model: Any, ids: Any) -> float:
    """Delete ids in one batch, without what a call costs; return milliseconds of processor time."""
    nothing = np.empty((0, len(model._features().names))), np.empty(0, dtype=np.int32)
    op, row = np.full(len(ids), DELETE, dtype=np.int8), np.full(len(ids), -1)
    batch = UpdateBatch(model._seq, op, ids, *nothing, len(model.classes_), row)
    took, _ = timed(lambda: model.session_.driver.run(model.session_.coordinator.process(batch)))
    model._seq += len(ids)
    return 1e3 * took


def deletion(every: list[Rows], seeds: int, _: list[str]) -> None:
    """Processor time of deletions one by one, of many in one call, and beside training anew."""
    for rows in every:
        lines, n = [], len(rows.y)
        for rebuild in REBUILDS:
            took, queries, batched = [], [], []
            for seed in range(seeds):
                model = ours(rows, seed, rebuild=rebuild).fit(rows.train, rows.y)
                ids = np.random.default_rng(seed).permutation(n)
                took.append([deleted(model, ids[i : i + 1]) for i in range(min(1001, n))][1:])
                batched.append(deleted(model, ids[1001:2001]) / len(ids[1001:2001]))
                queries.append(1e3 * timed(model.session_.coordinator.model)[0])  # type: ignore[attr-defined]
            each = np.concatenate(took)
            figures = each.mean(), np.median(each), np.percentile(each, 99), each.max()
            lines.append([rebuild, *(f"{ms:.3f}" for ms in (*figures, np.median(batched), np.median(queries)))])
        header = ["1,000 deletions one by one", "mean, ms", "median", "p99", "max", "of 1,000 in one call"]
        show(f"{rows.name}, {n:,} rows", [*header, "then all trees, ms"], lines)
        lines = []
        for many in (1, max(1, n // 1000), max(1, n // 100)):
            for rebuild in REBUILDS:
                ratios, spent = [], []
                for seed in range(seeds):
                    trained, model = timed(lambda: ours(rows, seed, rebuild=rebuild).fit(rows.train, rows.y))  # noqa: B023
                    ids = np.random.default_rng(seed).permutation(n)[:many]
                    spent.append(timed(lambda: model.forget(ids, digests=False))[0])  # noqa: B023
                    ratios.append(trained / spent[-1])
                lines.append([f"{many:,}", rebuild, f"{1e3 * np.median(spent):.2f}", f"{np.median(ratios):,.0f}"])
        show(f"{rows.name}, at once", ["deleted at once", "", "ms of processor time", "training / deletion"], lines)


def training(every: list[Rows], seeds: int, _: list[str]) -> None:
    """Processor time of training beside ExtraTrees, of the same depth and on the same columns."""
    for rows in every:
        depth, turn = SETTINGS.get(rows.name, {}).get("max_depth", 20), iter(range(3 * seeds + 3))
        seed = lambda turn=turn: next(turn) // 3  # noqa: E731 (three contestants take each seed)
        found = in_turns(
            {
                "exact forest": lambda: ours(rows, seed()).fit(rows.wide_train, rows.y),  # noqa: B023
                "exact forest, categories": lambda: ours(rows, seed()).fit(rows.train, rows.y),  # noqa: B023
                "ExtraTrees": lambda: ExtraTreesClassifier(
                    TREES, max_depth=depth, n_jobs=1, random_state=seed()  # noqa: B023
                ).fit(rows.wide_train, rows.y),  # noqa: B023
            },
            seeds,
        )  # fmt: skip
        lines = [[who, f"{t.median:.2f}", f"{t.median / found['ExtraTrees'].median:.2f}"] for who, t in found.items()]
        show(rows.name, ["", "s", "of ExtraTrees"], lines)


def bytes_of(value: Any) -> int:
    """Count the bytes of an array, or of all arrays of named tuples."""
    return value.nbytes if isinstance(value, np.ndarray) else sum(map(bytes_of, value))


def memory(every: list[Rows], seeds: int, _: list[str]) -> None:
    """Bytes of the arrays of a trained forest: by row, by row and tree that holds it, and by node."""
    lines = []
    for rows in every:
        for share in (0.1, 1.0):
            store: Any = ours(rows, 0, sample_share=share).fit(rows.train, rows.y).session_.coordinator.store
            trees, n = store.parts[0], len(rows.y)
            held, forests = n * trees.options.copies, [pool.forest for pool in trees.pools]
            nodes = trees.shape()[0]
            of_rows, of_links = bytes_of(trees.examples), bytes_of(forests[0].members)
            of_nodes = sum(bytes_of((forest.nodes, forest.totals, forest.blocks)) for forest in forests)
            per = (of_rows / n, of_links / held, of_nodes / nodes, (of_links + of_nodes) / held)
            whole = (of_rows + of_links + of_nodes) / 2**20
            lines.append([f"{rows.name}, q = {share:g}", f"{nodes:,}", *(f"{b:.0f}" for b in per), f"{whole:.0f}"])
    header = ["", "nodes", "B a row", "lists, B a row and tree", "B a node", "trees, B a row and tree", "in all, MiB"]
    show("Bytes of the arrays", header, lines)


if __name__ == "__main__":
    tables = {"accuracy": accuracy, "deletion": deletion, "training": training, "memory": memory}
    asked = arguments(__doc__, name_={"choices": tables}, seeds=5, only=[], max_features=int, models=[])
    print_machine("scikit-learn")
    sets = [rows for rows in data_sets() if not asked.only or rows.name in asked.only]
    for rows in sets if asked.max_features else ():
        SETTINGS[rows.name] = SETTINGS.get(rows.name, {}) | {"max_features": asked.max_features}
    tables[asked.name](sets, asked.seeds, asked.models)
