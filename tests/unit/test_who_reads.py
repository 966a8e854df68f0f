"""Who reads the rows of the warm-up: the line of ``validate``, and what a run does where a node has other files."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.config import Config
from pipelines.running.plans import features_of
from pipelines.saved_runs import open_stream
from pipelines.validation import divide, look_at, place
from raydt.messages import Message, message
from raydt.redaction import text

SEA = {"kind": "synthetic", "generator": "sea", "n": 500}
SPARSE = {"kind": "synthetic", "generator": "sparse", "n": 500, "irrelevant": 20}
CHANGES = {"kind": "parquet", "path": "changes.parquet", "id": "id", "op": "op"}


def config_of(learner: str, source: dict[str, Any], folder: Path, warmup: int = 300, **cluster: Any) -> Config:
    """A config whose shards do all work, unless ``cluster`` says otherwise."""
    if "op" in source:
        table = pa.table({"op": ["insert"] * 9, "id": range(9), "a": [1.0, 2.0, 3.0] * 3, "y": [0, 1, 1] * 3})
        table = table.append_column("k", [["u", "v", "w"] * 3]) if "key" in source else table
        pq.write_table(table, folder / "changes.parquet")
        source = {**source, "path": str(folder / "changes.parquet")}
    model = "changelog" if "op" in source else "incremental"
    return Config.model_validate(
        {
            "source": source,
            "stream": {"model": model, "warmup": warmup},
            "learner": {"kind": learner},
            "cluster": {"backend": "ray", "shards": 2, "memory_limit": 0, **cluster},
        }
    )


def sent(id: str, **parameters: Any) -> Message:
    return message("runs.rows_sent", why=message(id, **parameters))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("gbdt", SEA), message("runs.rows_read", rows="300 rows", what=message("runs.own_columns"))),
        (("fudyadt", SEA, 1000), message("runs.rows_read", rows="500 rows", what=message("runs.own_columns"))),
        (("forest", SEA), message("runs.rows_read", rows="300 rows", what=message("runs.all_columns"))),
        (("confidence_tree", SEA), sent("runs.whole_rows", learner="confidence_tree")),
        (("sparse_tree", SPARSE), message("runs.rows_read", rows="300 rows", what=message("runs.own_columns"))),
        (("best_split", SPARSE, 300, {"memory_limit": None}), None),
        (("best_split", SPARSE, 300, {"memory_limit": 10**9}), sent("runs.unknown_ones")),
        (("gbdt", CHANGES), message("runs.rows_read", rows="9 rows", what=message("runs.own_columns"))),
        (("fudyadt", SEA, 0), None),
        (("gbdt", SEA, 300, {"backend": "in_process"}), None),
        (("gbdt", SEA, 300, {"memory_limit": None}), None),
        (("forest", {**CHANGES, "key": "k"}), None),
    ],
    ids=str,
)
def test_validate_says_who_reads(
    given: Any, expected: Message | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.validation.starts_ray", lambda _: True)  # no Ray counts that other tests have here
    learner, source, *others = given
    warmup, cluster = [*others, *[300, {}][len(others) :]]
    found = look_at(config_of(learner, source, tmp_path, warmup, **cluster))["reading"]
    assert (found and text(found)) == (expected and text(expected))


@pytest.mark.parametrize("lacks", [True, False])
def test_rows_are_sent_if_a_node_has_other_files(lacks: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = config_of("gbdt", SEA, tmp_path)
    source, stream = open_stream(config)
    features = features_of(source, config.learner)
    config = config.placed(place(config, features, source.n_rows))
    begun: list[Any] = []
    session = SimpleNamespace(divide=lambda *_: "shard 1 (pid 5 on b)" if lacks else SimpleNamespace(rows=lambda: "r"))
    told: Any = SimpleNamespace(source=stream.source, begin_with=begun.append)
    with caplog.at_level(logging.INFO, "pipelines.validation"):
        assert divide(config, session, told, features) is not lacks
    assert begun == ([] if lacks else ["r"])
    (record,) = caplog.records
    assert record.event == ("rows_sent" if lacks else "rows_read")  # type: ignore[attr-defined]
    if lacks:
        assert record.getMessage() == str(sent("sources.other_here", name="shard 1 (pid 5 on b)"))
