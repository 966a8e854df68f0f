"""Stream model ``batches`` by example: the ways of the published experiments, removal orders, what is refused."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from raydt.examples.updates import INSERT
from raydt.sources.divided import open_source
from raydt.sources.options import CsvFiles, Hyperplane, Sea
from raydt.streams.base import history_of
from raydt.streams.options import StreamOptions, make_stream
from raydt.streams.windows import Batches
from tests.oracles.streams import MemorySource, Row
from tests.refusals import refusal, refused

OPTIONS = TypeAdapter(StreamOptions)
TENTHS = [i / 10 for i in range(1, 11)]


def run(steps, n=100, **options):
    """Operations and ids of a whole stream, one array each."""
    stream = make_stream(Batches(steps=steps, **options), MemorySource([Row(i, 0) for i in range(n)], (30,)))
    batches = list(stream.batches(7))
    assert stream.length() == sum(map(len, batches))
    return np.concatenate([b.op for b in batches]), np.concatenate([b.id for b in batches])


def sizes(op):
    """Active examples at each turn from inserts to deletes or back, and at the end."""
    active = np.cumsum(np.where(op == INSERT, 1, -1))
    return [*active[:-1][np.diff(op) != 0].tolist(), int(active[-1])]


def test_down_and_up_inserts_the_removed_rows_again_in_source_order():
    op, ids = run([1.0, 0.05, 1.0], removal_order="lifo")
    assert sizes(op) == [100, 5, 100]
    assert ids.tolist() == [*range(100), *range(99, 4, -1), *range(5, 100)]
    _, ids = run([50, 20, 90])
    assert ids.tolist() == [*range(50), *range(30), *range(30), *range(50, 90)]


@pytest.mark.parametrize(("n", "share", "size"), [(45, 0.1, 4), (55, 0.1, 6), (50, 0.57, 28), (10, 0.01, 0)])
def test_shares_are_rounded_half_to_even(n, share, size):
    assert sizes(run([1.0, share], n=n)[0]) == [n, size]


def test_rows_that_are_active_are_not_read_again():
    source = open_source(Sea(n=30_000))
    starts = []
    rows = source.rows
    source.rows = lambda start=0: starts.append(start) or rows(start)
    stream = make_stream(Batches(steps=[0.5, 0.8, 1.0, 0.9, 0.95], removal_order="lifo"), source)
    history = history_of(stream)
    assert starts == [0, 27_000]
    assert len(history.id) == 31_500


def test_csv_rows_are_counted_where_shares_need_it(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "1,a\n2,b\n" * 10)
    for steps, n, length in (([0.5, 0.25], 20, 15), ([10, 5], None, None)):
        source = open_source(CsvFiles(path="t.csv"), tmp_path)
        stream = make_stream(Batches(steps=steps), source)
        assert (source.n_rows, stream.length()) == (n, length)
        assert sum(map(len, stream.batches(100))) == 15


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"steps": []}, "batches.steps: too_short"),
        ({"steps": [1.5]}, "batches.steps.0: streams.step"),
        ({"steps": [0.0]}, "batches.steps.0: streams.step"),
        ({"steps": [-1]}, "batches.steps.0: streams.step"),
        ({"steps": ["10%"]}, "batches.steps.0: streams.step"),
        ({"steps": [True]}, "batches.steps.0: streams.step"),
        ({"steps": 10}, "batches.steps: list_type"),
        ({"steps": [10], "removal_order": "oldest"}, "batches.removal_order: literal_error"),
        ({"steps": [10], "warmup": 11}, "batches: streams.warmup_beyond_step"),
        ({"steps": [0.1, 1, 0.1]}, "batches: streams.mixed_steps"),
    ],
    ids=str,
)
def test_options_that_are_refused(options, problem):
    assert refusal(OPTIONS, {"model": "batches", **options}) == problem


def test_shares_survive_a_round_trip():
    options = Batches(steps=[0.5, 1.0, 2, 0])
    again = OPTIONS.validate_json(options.model_dump_json())
    assert again == options
    assert [type(step) for step in again.steps] == [float, float, int, int]


def test_a_warm_up_ends_where_the_rows_run_out():
    with refused("streams.warmup_beyond_rows", warmup=11, first=10, rows=100):
        make_stream(Batches(steps=[0.1, 1.0], warmup=11), open_source(Hyperplane(n=100)))
    stream = make_stream(Batches(steps=[20, 5], warmup=15), MemorySource([Row(i, 0) for i in range(10)]))
    assert [(len(batch), batch.warmup) for batch in stream.batches(100)] == [(10, 15), (5, 10)]
