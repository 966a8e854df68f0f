"""Labels and ids as users give them: columns of text and numbers are taken as the value after value of a list is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import FullyDynamicTreeClassifier
from raydt.errors import RaydtError
from raydt.estimators import arguments
from raydt.estimators import base as targets
from raydt.estimators.arguments import ids_of

TEXTS = st.sampled_from(["no", "yes", "é", "", "1"])
ODD: st.SearchStrategy[Any] = st.one_of(TEXTS, st.sampled_from([None, float("nan"), 1, True, b"no", "nul\0", "\ud800"]))


def learnt(labels: Any, more: Any) -> Any:
    """Classes and the codes of further labels, or the error."""
    X = np.zeros((len(labels), 1))
    try:
        model = FullyDynamicTreeClassifier(max_depth=0).fit(X, labels)
        codes = targets._codes_of(arguments.labels_of(more), model.classes_)
        return model.classes_.tolist(), model.classes_.dtype, codes.tolist(), codes.dtype, model.digest()
    except (RaydtError, ValueError, TypeError) as error:
        return type(error), str(error)


@given(
    labels=st.one_of(st.lists(TEXTS, min_size=1, max_size=12), st.lists(ODD, min_size=1, max_size=6)),
    more=st.lists(TEXTS, min_size=1, max_size=8),
    listed=st.booleans(),
)
def test_text_is_taken_as_values_one_after_another_are(labels: list[Any], more: list[str], listed: bool) -> None:
    def shaped(values: list[Any]) -> Any:
        array = np.empty(len(values), dtype=np.object_)
        array[:] = values
        return values if listed else array

    fast = learnt(shaped(labels), shaped(more))
    with pytest.MonkeyPatch.context() as patch:
        for module in (arguments, targets):
            patch.setattr(module, "text_column", lambda _: None)
        assert learnt(shaped(labels), shaped(more)) == fast


@given(
    ids=st.one_of(
        st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.uint64)),
        st.lists(st.floats(width=16), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float16)),
        st.lists(st.integers(-(2**54), 2**54), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float64)),
        st.lists(st.integers(-(2**25), 2**25), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float32)),
        st.lists(st.floats(), min_size=1, max_size=3).map(np.array),
    )
)
def test_ids_in_arrays_are_judged_as_each_of_them(ids: Any) -> None:
    exact = 2 ** (np.finfo(ids.dtype).nmant + 1) if ids.dtype.kind == "f" else 2**63

    def sound(value: Any) -> bool:
        return (isinstance(value, int) and value < 2**63) or (
            isinstance(value, float) and value.is_integer() and abs(value) < exact
        )

    wrong = [row for row, value in enumerate(ids.tolist()) if not sound(value)]
    if wrong:
        with pytest.raises(RaydtError) as found:
            ids_of(ids)
        assert found.value.row == wrong[0]
    else:
        assert ids_of(ids).tolist() == [int(value) for value in ids.tolist()]
