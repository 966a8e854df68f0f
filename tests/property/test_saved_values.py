"""What an estimator accepts it can also save: labels, categories and names of columns of any kind, drawn at random.

Each call either refuses its values, with one error, or the model that ``save`` writes predicts the same values.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from raydt import load_model
from tests.unit.test_replace_examples import ESTIMATORS, takes_sparse_rows_only
from tests.volume import spread

#: Two values of each kind.
PAIRS: dict[str, tuple[Any, Any]] = {
    "text": ("a", "b"),
    "odd text": ("\u2028", "é\n"),
    "text that ends with NUL": ("a\0", "a"),
    "bytes": (b"a", b"b"),
    "truth values": (False, True),
    "integers": (-3, 4),
    "large integers": (2**60 + 1, 2**60 + 2),
    "unsigned integers": (1, 2**64 - 1),
    "huge integers": (1, 2**70),
    "whole numbers": (1.0, 2.0),
    "large whole numbers": (1e300, 2.0**60),
    "fractions": (1.5, 2.5),
    "truth values and integers": (True, 2),
    "complex numbers": (1j, 2j),
    "times": (datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)),
    "dates": (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
    "lengths of time": (datetime.timedelta(1), datetime.timedelta(2)),
    "decimals": (decimal.Decimal(1), decimal.Decimal(2)),
    "ratios": (fractions.Fraction(1, 2), fractions.Fraction(3, 2)),
    "UUIDs": (uuid.UUID(int=1), uuid.UUID(int=2)),
    "tuples": ((1, 2), (3, 4)),
    "scalars of 64 bits": (np.int64(1), np.int64(2)),
    "scalars of 32 bits": (np.float32(1), np.float32(2)),
    "scalars of text": (np.str_("a"), np.str_("b")),
}
TYPES = ["int8", "uint8", "uint64", "float16", "float32", "longdouble", "datetime64[s]", "timedelta64[s]", "V2", "bool"]
ROWS = 24


def values(draw: random.Random) -> Any:
    """A column of one kind, in one of the forms in which users hold columns."""
    if draw.random() < 0.25:
        return np.tile(np.array([1, 2]), ROWS // 2).astype(draw.choice(TYPES))
    pair = PAIRS[draw.choice(sorted(PAIRS))]
    column = [*pair] * (ROWS // 2)
    form = draw.choice(["list", "array", "objects", "series", "categorical"])
    if form == "list":
        return column
    if form == "array" and not isinstance(pair[0], tuple):
        return np.array(column)
    objects = np.empty(ROWS, dtype=object)
    objects[:] = column
    if form in ("array", "objects"):
        return objects
    return pd.Series(objects, dtype="category" if form == "categorical" else object)


def rows(estimator: Any, draw: random.Random, names: list[Any]) -> Any:
    """Features, one of them perhaps a column of any kind."""
    numbers = np.arange(ROWS)[:, None] // [[1, 2, 3]] % 2 * 1.0
    if takes_sparse_rows_only(estimator):
        return csr_matrix(numbers)
    if not names:
        return numbers
    return pd.DataFrame(numbers, columns=names).assign(kind=values(draw))


def known(labels: Any) -> list[tuple[bool, Any]]:
    """Labels with what tells text from numbers."""
    return [(isinstance(label, str), label) for label in labels.tolist()]


@pytest.mark.share
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_values_are_refused_or_saved(estimator: Any, tmp_path: Path) -> None:
    for number in spread(range(400), 50):
        draw = random.Random(f"{estimator.__name__} {number}")
        place, model = tmp_path / str(number), estimator()
        if "categorical_features" in model.get_params() and draw.random() < 0.5:
            model.set_params(categorical_features=[draw.choice([0, "kind"])])
        names = draw.choice([[], draw.sample(["a", "b", "é", "\n", "", 0, 1.5, "a b"], 3)])
        accepted = []
        for call in (model.fit, model.partial_fit):
            X, y = rows(estimator, draw, names), values(draw)
            if draw.random() < 0.5:
                y = [draw.randrange(2) for _ in range(ROWS)]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(X, y)
            except (ValueError, TypeError):
                if not accepted:
                    break
            else:
                accepted.append((X, y))
        if not accepted:
            continue
        model.save(place, with_examples=draw.random() < 0.5)
        loaded = load_model(place)
        for X, y in accepted:
            truth = model.predict(X)
            assert known(loaded.predict(X)) == known(truth), number
            if hasattr(model, "classes_"):
                assert known(loaded.classes_) == known(model.classes_), number
                kinds = {(isinstance(label, str), label) for label in (y.tolist() if hasattr(y, "tolist") else y)}
                assert kinds <= {*known(model.classes_)}, number
