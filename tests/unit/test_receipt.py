"""What a receipt says of each deletion is what a look at the tree before and after it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from raydt import FullyDynamicTreeClassifier, load_model
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.sessions.receipt import Receipt
from raydt.sessions.session import InProcessSession
from tests.oracles.receipts import leaf_of, receipt_rows


def examples(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 1)
    X[:, 2] = np.append(np.arange(4), rng.integers(0, 4, n - 4))  # category k gets code k
    kind = ((X[:, 0] > 0) ^ (X[:, 2] == 1)).astype(int) + (X[:, 1] > 1)
    return X, np.array(["no", "yes", "perhaps"])[kind]


def grown(X: np.ndarray, y: np.ndarray, **options: object) -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier(categorical_features=[2], **options).fit(X, y)


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.5, "alpha": 0.0, "beta": 0.0}, {"epsilon": 0.0, "max_depth": 3}])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_is_what_a_deletion_on_its_own_shows(tmp_path: Path, options: dict, seed: int) -> None:
    X, y = examples(400, seed)
    tree = grown(X, y, **options)
    tree.save(tmp_path / "state", with_examples=True)
    ids = np.random.default_rng(seed).permutation(400)[:150]
    slow = load_model(tmp_path / "state")
    expected = receipt_rows(slow, ids.tolist(), X, y)
    receipt = tree.forget(ids)
    assert receipt.digest_after == tree.digest() == slow.digest()
    for name in ("id", "label", "leaf", "path", "rebuilt_rows"):
        assert receipt.deletions[name].tolist() == [row[name] for row in expected], name
    caused = receipt.deletions["rebuilt_depth"] >= 0
    assert caused.tolist() == [row["rebuilds"] == 1 for row in expected]
    assert caused.any()
    assert not any(row["changed"] and not hit for row, hit in zip(expected, caused, strict=True))
    assert (receipt.deletions["rebuilt_depth"] < receipt.deletions["path"]).all()
    assert receipt.rebuilds == caused.sum()
    assert receipt.rebuilt_rows == receipt.deletions["rebuilt_rows"].sum()
    assert receipt.rebuilt_nodes == receipt.deletions["rebuilt_nodes"].sum()
    assert receipt.work["counts_changed"] == receipt.deletions["path"].sum()
    assert (receipt.active_before, receipt.active) == (400, 250)


def test_counts_go_down_by_one_on_the_path_and_nowhere_else() -> None:
    X, y = examples(300, 5)
    tree = grown(X, y, epsilon=1.0)
    before = tree.session_.model()
    receipt = tree.forget([17])
    after = tree.session_.model()
    assert receipt.rebuilds == 0
    changed = before["counts"] - after["counts"]
    assert changed.sum() == receipt.deletions["path"][0] == receipt.work["counts_changed"]
    assert set(np.unique(changed)) == {0, 1}
    assert np.flatnonzero(changed.sum(axis=0)).tolist() == [tree.classes_.tolist().index(y[17])]
    assert changed[leaf_of(before, X[17], (False, False, True))[0]].sum() == 1


def test_the_path_of_every_operation() -> None:
    X, y = examples(60, 3)
    tree = grown(X, y, epsilon=1.0)  # nothing is rebuilt below
    session: InProcessSession = tree.session_
    model = session.model()
    op = np.array([DELETE, UPDATE, QUERY, INSERT, DELETE_VALUE, DELETE], np.int8)
    rows = X[[30, 31, 32, 9]]
    batch = UpdateBatch(60, op, np.array([5, 6, 0, 99, 0, 99]), rows, np.zeros(4, np.int32), 3, np.full(6, -1))
    batch.y[3] = tree.classes_.tolist().index(y[9])
    result = session.apply(batch)
    assert len(result.log["seq"]) == 0
    path = [leaf_of(model, x, (False, False, True))[1] for x in (X[5], X[6], X[30], X[32], X[9])]
    assert result.path.tolist() == [path[0], path[1] + path[2], 0, path[3], path[4], path[3]]


def test_a_chain_of_calls_makes_one_digest_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = examples(50, 3)
    tree = grown(X, y)
    made = []
    digest = tree.session_.digest
    monkeypatch.setattr(tree.session_, "digest", lambda: made.append(1) or digest())
    receipts = [tree.forget([i]) for i in range(4)]
    assert len(made) == 5
    assert [r.digest_before for r in receipts[1:]] == [r.digest_after for r in receipts[:-1]]
    tree.partial_fit(X[:1], y[:1])
    assert tree.forget([10]).digest_before not in {r.digest_after for r in receipts}
    assert len(made) == 7
    receipt = tree.forget([11], digests=False)
    assert (receipt.digest_before, receipt.digest_after, len(made)) == (None, None, 7)
    assert tree.digest() == digest()


def test_a_receipt_is_plain_columns() -> None:
    X, y = examples(50, 3)
    tree = grown(X, y)
    receipt = tree.forget_examples(X[:2], y[:2])
    assert isinstance(receipt, Receipt)
    assert pa.table(receipt.deletions).num_rows == 2
    told = json.loads(json.dumps(receipt.as_dict()))
    assert told["deletions"]["label"] == y[:2].tolist()
    assert told["deletes"] == 2
    assert told["copies"]
    assert repr(receipt).startswith("Receipt(2 deleted, 0 inserted, ")
    nothing = tree.forget([])
    assert len(nothing.ids) == 0
    assert nothing.copies == ()
    assert nothing.digest_before == nothing.digest_after
