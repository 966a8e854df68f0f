"""The exact forest: how accurate it is, and how fast it trains and deletes, beside scikit-learn's forests.

    python benchmarks/forest/run.py accuracy | deletion | training | memory [--seeds 5] [--only NAME ...]
        [--models NAME ...] [--max-features P]

``accuracy`` trains on the training rows and predicts the test rows: categories by value for the exact forest, as
columns of 0 and 1 for the others, which cannot take them. ``deletion`` deletes one example after the other from a
fitted forest, eagerly and lazily, then many in one call; ``training`` compares the processor time of a training with
ExtraTreesClassifier(n_jobs=1) of the same depth, on the same columns of 0 and 1. Both sides are in one run. ``memory``
counts the bytes of the arrays of a trained forest.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from forest.data import Rows, data_sets
from harness import machine, table
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from raydt import ExactForestClassifier, FullyDynamicTreeClassifier, OnlineGradientBoostingClassifier
from raydt.examples.updates import DELETE, UpdateBatch

TREES = 100
#: When subtrees are rebuilt.
REBUILDS = ["eager", "lazy"]
#: Of the data sets that need other settings than the defaults: those of the published tables.
SETTINGS: dict[str, dict[str, Any]] = {
    "adult": {"max_depth": 15, "min_samples_split": 20},
    "heart": {"max_depth": 15},
    "purchase": {"max_depth": 10},
}


def ours(rows: Rows, seed: int, **options: Any) -> ExactForestClassifier:
    """The exact forest with the settings of a data set."""
    chosen = {"sample_share": 0.1, **SETTINGS.get(rows.name, {}), **options}
    return ExactForestClassifier(n_estimators=TREES, random_state=seed, **chosen)


def auc(rows: Rows, shares: Any) -> float:
    """AUROC; of several classes that of each against the rest, in the mean."""
    if shares.shape[1] == 2:
        return float(roc_auc_score(rows.y_test, shares[:, 1]))
    return float(roc_auc_score(rows.y_test, shares, multi_class="ovr"))


def accuracy(every: list[Rows], seeds: int, models: list[str] | None) -> None:
    """Held-out accuracy and AUROC, and the processor time of training."""
    contestants: dict[str, Callable[[Rows, int], tuple[Any, bool]]] = {
        "exact forest, q = 0.1": lambda rows, seed: (ours(rows, seed), False),
        "exact forest, q = 0.2": lambda rows, seed: (ours(rows, seed, sample_share=0.2), False),
        "exact forest, q = 0.5": lambda rows, seed: (ours(rows, seed, sample_share=0.5), False),
        "exact forest, q = 1": lambda rows, seed: (ours(rows, seed, sample_share=1.0), False),
        "RandomForest": lambda rows, seed: (RandomForestClassifier(TREES, random_state=seed), True),
        "ExtraTrees": lambda rows, seed: (ExtraTreesClassifier(TREES, random_state=seed), True),
        "LightGBM": lambda rows, seed: (
            LGBMClassifier(n_estimators=100, num_leaves=20, n_jobs=1, random_state=seed, verbose=-1),
            True,
        ),
        "gbdt": lambda rows, seed: (OnlineGradientBoostingClassifier(random_state=seed), True),
        "one tree (fudyadt)": lambda rows, seed: (FullyDynamicTreeClassifier(), True),
    }
    if models is not None:
        contestants = {name: make for name, make in contestants.items() if name.startswith(tuple(models))}
    for rows in every:
        lines = []
        for name, make in contestants.items():
            found = []
            for seed in range(1 if "one tree" in name else seeds):
                model, wide = make(rows, seed)
                began = time.process_time()
                model.fit(rows.wide_train if wide else rows.train, rows.y)
                took = time.process_time() - began
                shares = model.predict_proba(rows.wide_test if wide else rows.test)
                found.append(((shares.argmax(axis=1) == rows.y_test).mean(), auc(rows, shares), took))
            mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
            lines.append(
                [name, f"{mean[0]:.4f} ± {spread[0]:.4f}", f"{mean[1]:.4f}", f"{np.median(found, axis=0)[2]:.2f}"]
            )
        title = (
            f"\n### {rows.name}: {len(rows.y):,} rows, {rows.train.shape[1]} columns, {rows.wide_train.shape[1]} wide\n"
        )
        print(title, *table(["", "accuracy", "AUROC", "training, s of processor time"], lines), sep="\n", flush=True)


def one_by_one(model: Any, ids: Any) -> Any:
    """Milliseconds of processor time of each deletion, from the update to the end of its exchange."""
    took, session = [], model.session_
    nothing = np.empty((0, len(model._features().names))), np.empty(0, dtype=np.int32)
    for seq, key in enumerate(ids.tolist()):
        op = np.array([DELETE], dtype=np.int8)
        batch = UpdateBatch(model._seq + seq, op, np.array([key]), *nothing, len(model.classes_), np.array([-1]))
        began = time.process_time()
        session.driver.run(session.coordinator.process(batch))
        took.append(1e3 * (time.process_time() - began))
    return np.array(took[1:])


def in_one_call(model: Any, ids: Any) -> float:
    """Milliseconds of each of many deletions in one batch: without what a call costs."""
    nothing = np.empty((0, len(model._features().names))), np.empty(0, dtype=np.int32)
    op, row = np.full(len(ids), DELETE, dtype=np.int8), np.full(len(ids), -1)
    batch = UpdateBatch(model._seq, op, ids, *nothing, len(model.classes_), row)
    began = time.process_time()
    model.session_.driver.run(model.session_.coordinator.process(batch))
    model._seq += len(ids)
    return 1e3 * (time.process_time() - began) / len(ids)


def deletion(every: list[Rows], seeds: int) -> None:
    """Processor time of deletions one by one, of many in one call, and beside training anew."""
    for rows in every:
        lines, n = [], len(rows.y)
        for rebuild in REBUILDS:
            took, queries, batched = [], [], []
            for seed in range(seeds):
                model = ours(rows, seed, rebuild=rebuild).fit(rows.train, rows.y)
                ids = np.random.default_rng(seed).permutation(n)
                took.append(one_by_one(model, ids[:1001]))
                model._seq += 1001
                batched.append(in_one_call(model, ids[1001:2001]))
                began = time.process_time()
                model.session_.coordinator.model()
                queries.append(1e3 * (time.process_time() - began))
            each = np.concatenate(took)
            figures = (
                each.mean(),
                np.median(each),
                np.percentile(each, 99),
                each.max(),
                np.median(batched),
                np.median(queries),
            )
            lines.append([rebuild, *(f"{figure:.3f}" for figure in figures)])
        header = [
            "1,000 deletions one by one",
            "mean, ms",
            "median",
            "p99",
            "max",
            "of 1,000 in one call",
            "then all trees, ms",
        ]
        print(f"\n### {rows.name}, {n:,} rows\n", *table(header, lines), sep="\n", flush=True)
        lines = []
        for many in (1, max(1, n // 1000), max(1, n // 100)):
            for rebuild in REBUILDS:
                ratios, spent = [], []
                for seed in range(seeds):
                    began = time.process_time()
                    model = ours(rows, seed, rebuild=rebuild).fit(rows.train, rows.y)
                    trained = time.process_time() - began
                    ids = np.random.default_rng(seed).permutation(n)[:many]
                    began = time.process_time()
                    model.forget(ids, digests=False)
                    spent.append(time.process_time() - began)
                    ratios.append(trained / spent[-1])
                lines.append([f"{many:,}", rebuild, f"{1e3 * np.median(spent):.2f}", f"{np.median(ratios):,.0f}"])
        print(
            *table(["deleted at once", "", "ms of processor time", "training / deletion"], lines), sep="\n", flush=True
        )


def training(every: list[Rows], seeds: int) -> None:
    """Processor time of training beside ExtraTrees, of the same depth and on the same columns."""
    for rows in every:
        depth = SETTINGS.get(rows.name, {}).get("max_depth", 20)
        took: dict[str, list[float]] = {"exact forest": [], "exact forest, categories": [], "ExtraTrees": []}
        for seed in range(seeds + 1):
            theirs = ExtraTreesClassifier(TREES, max_depth=depth, n_jobs=1, random_state=seed)
            for name, model, X in (
                ("exact forest", ours(rows, seed), rows.wide_train),
                ("exact forest, categories", ours(rows, seed), rows.train),
                ("ExtraTrees", theirs, rows.wide_train),
            ):
                began = time.process_time()
                model.fit(X, rows.y)
                took[name].append(time.process_time() - began)
        medians = {name: float(np.median(values[1:])) for name, values in took.items()}
        lines = [[name, f"{value:.2f}", f"{value / medians['ExtraTrees']:.2f}"] for name, value in medians.items()]
        print(f"\n### {rows.name}\n", *table(["", "s", "of ExtraTrees"], lines), sep="\n", flush=True)


def bytes_of(value: Any) -> int:
    """Bytes of an array, or of all arrays of named tuples."""
    return value.nbytes if isinstance(value, np.ndarray) else sum(map(bytes_of, value))


def memory(every: list[Rows], seeds: int) -> None:
    """Bytes of the arrays of a trained forest: by row, by row and tree that holds it, and by node."""
    lines = []
    for rows in every:
        for share in (0.1, 1.0):
            model = ours(rows, 0, sample_share=share).fit(rows.train, rows.y)
            store: Any = model.session_.coordinator.store
            trees, n = store.parts[0], len(rows.y)
            held, forests = n * trees.options.copies, [pool.forest for pool in trees.pools]
            nodes = trees.shape()[0]
            of_rows, of_links = bytes_of(trees.examples), bytes_of(forests[0].members)
            of_nodes = sum(bytes_of((forest.nodes, forest.totals, forest.blocks)) for forest in forests)
            per = (of_rows / n, of_links / held, of_nodes / nodes, (of_links + of_nodes) / held)
            whole = (of_rows + of_links + of_nodes) / 2**20
            lines.append([f"{rows.name}, q = {share:g}", f"{nodes:,}", *(f"{b:.0f}" for b in per), f"{whole:.0f}"])
    header = ["", "nodes", "B a row", "lists, B a row and tree", "B a node", "trees, B a row and tree", "in all, MiB"]
    print(*table(header, lines), sep="\n", flush=True)


def main() -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = {"deletion": deletion, "training": training, "memory": memory}
    parser.add_argument("name", choices=["accuracy", *commands])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--max-features", type=int, help="of the exact forest, in place of its default")
    parser.add_argument("--models", nargs="*", default=None, help="of accuracy: those whose names begin so")
    asked = parser.parse_args()
    print(machine("scikit-learn"), flush=True)
    every = [rows for rows in data_sets() if asked.only is None or rows.name in asked.only]
    chosen = {} if asked.max_features is None else {"max_features": asked.max_features}
    for rows in every:
        SETTINGS[rows.name] = SETTINGS.get(rows.name, {}) | chosen
    if asked.name == "accuracy":
        accuracy(every, asked.seeds, asked.models)
    else:
        commands[asked.name](every, asked.seeds)


if __name__ == "__main__":
    main()
