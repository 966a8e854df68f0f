"""Memory: stored arrays, and the peak of a process that loads, trains and updates; one process per data set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import SIZES, add, delete, fitted, lightgbm, ours, quality, size_of, timed, trivial
from gbdt.data import Split, load, read
from kit import progress, show
from measure import peak_mb, stored_bytes

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
    """LightGBM on the same documents."""
    X, y = documents()
    cut = int(TRAINED * X.shape[0])
    split = Split("Reuters", X[:cut], y[:cut], X[cut:], y[cut:])
    seconds, model = timed(lambda: lightgbm(split))
    return {"train": seconds, "quality": quality(model, split), "updated": peak_mb()}


def fitted_sparse(split: Split, **options: Any) -> Any:
    """Our estimator on CSR rows."""
    return ours(split, **options).fit(split.X, split.y, ids=np.arange(split.X.shape[0]))


def alone(function: str, *arguments: str) -> dict[str, float]:
    """``function`` of this module in a process of its own, so that the peak is its own."""
    code = f"import sys, json; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); from gbdt import memory; "
    code += f"print(json.dumps(memory.{function}(*{arguments!r})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(request: Request) -> None:
    """Print the tables."""
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
