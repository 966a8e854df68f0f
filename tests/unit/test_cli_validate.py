"""What ``validate`` says of a config, its data and its promises."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_job import JOB

from pipelines.operation import dump_yaml
from raydt.examples.updates import MOST_CLASSES
from raydt.learners import for_numbers
from raydt.messages import message

ROOT = Path(__file__).parents[2]


class TestValidate:
    def test_says_what_would_be_read(self, raydt, job):
        code, out, _ = raydt("validate", job, "--json")
        result = json.loads(out)
        assert code == 0
        assert (result["rows"], result["updates"], len(result["features"])) == (500, 500, 3)

    def test_finds_bad_rows_in_the_first_ones(self, raydt, tmp_path):
        (tmp_path / "data.csv").write_text("a,y\n1,u\ninf,v\n")
        config = {"source": {"kind": "csv", "path": "data.csv"}, "learner": {"kind": "fudyadt"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert "row 1, column 'a'" in out
        assert "stream.on_error" in out
        bad = message("commands.first_rows", bad="1 bad row", rows="2 rows")
        assert out.splitlines()[-1].endswith(message("commands.bad_rows", bad=bad).at("job.yaml"))
        skip = ("--set", "stream.model=incremental", "--set", "stream.on_error=skip")
        code, out, _ = raydt("validate", tmp_path / "job.yaml", *skip)
        assert code == 0
        assert "stream.on_error" not in out
        assert out.splitlines()[-1].endswith(message("commands.valid_but", skipped=bad).at("job.yaml"))

    @pytest.mark.parametrize(
        ("option", "words"),
        [
            (
                "epsilon=auto",
                r"promised: after every update, .* 0.2 \(beta\) .* 0.498% of its rows",
            ),
            ("epsilon=0.004", r"promised: epsilon 0.004 is below"),
            ("epsilon=1.9", r"not promised: epsilon 1.9 .* 0.00497512"),
        ],
    )
    def test_says_whether_a_guarantee_is_promised(self, raydt, job, option, words):
        out = raydt("validate", job, "--set", f"learner.{option}")[1]
        assert re.search(rf"^guarantee +{words}", out, re.MULTILINE)

    def test_a_warmup_that_is_hardly_meant_is_a_warning(self, raydt, job):
        learner = ("--set", "stream.model=incremental", "--set", "learner={kind: confidence_tree, renew_bins: 0}")
        out = raydt("validate", job, *learner, "--set", "stream.warmup=500")[1]
        said = re.escape(message("configs.all_warmup", warmup=500, rows="500 rows"))
        assert re.search(rf"^warning +{said}", out, re.MULTILINE)
        out = raydt("validate", job, *learner, "--set", "stream.warmup=5")[1]
        assert re.search(rf"^outlook +{message('learners.few_rows', rows='5 rows')}$", out, re.MULTILINE)
        assert "warning" not in out
        out = raydt("validate", job, *learner, "--set", "stream.warmup=20")[1]
        assert re.search(rf"^outlook +{re.escape(message('learners.unexplained'))}$", out, re.MULTILINE)
        majority = ("--set", "learner.leaf_prediction=majority")
        assert "outlook" not in raydt("validate", job, *learner, *majority, "--set", "stream.warmup=20")[1]

    def test_a_deletion_log_is_counted_and_a_time_column_has_its_place(self, raydt, tmp_path):
        when = pa.array([0, 1], pa.timestamp("us"))
        pq.write_table(pa.table({"k": [1, 2], "a": [0.0, 1.0], "t": when, "y": [0, 1]}), tmp_path / "data.parquet")
        (tmp_path / "log.csv").write_text("id\n1\n")
        source = {"kind": "parquet", "path": "data.parquet", "id": "k"}
        stream = {"model": "deletion_log", "deletion_log": "log.csv"}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "source": source, "stream": stream}))
        code, _, err = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert "set source.ts: t\n" in err
        code, out, _ = raydt("validate", tmp_path / "job.yaml", "--set", "source.ts=t")
        assert code == 0
        assert re.search(r"^deletion log +1 row$", out, re.MULTILINE)
        assert re.search(
            rf"^ids +{message('commands.all_ids', updates='3 updates', found=message('commands.right_ids'))}$",
            out,
            re.MULTILINE,
        )
        assert out.splitlines()[-1].endswith(message("commands.valid").at("job.yaml"))

    @pytest.mark.parametrize("ids", ["text", "integer", "row"])
    def test_ids_that_stop_a_replay_are_found(self, raydt, tmp_path, ids):
        """An id twice in the rows, an unknown id in the log, a deletion before its insertion, and one twice."""
        a, b, c, z = {"text": "abcz", "integer": "1239", "row": "0129"}[ids]
        rows = f"k,a,y\n{a},1,u\n{b},2,v\n{c},3,v\n" + f"{a},4,u\n" * (ids != "row")
        (tmp_path / "data.csv").write_text(rows)
        (tmp_path / "log.csv").write_text(f"id,after\n{c},1\n{z},2\n{a},\n{a},\n")
        source = {"kind": "csv", "path": "data.csv", **({"features": ["a"]} if ids == "row" else {"id": "k"})}
        stream = {"model": "deletion_log", "deletion_log": "log.csv"}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "source": source, "stream": stream}))
        code, out, _ = raydt("validate", tmp_path / "job.yaml", "--json")
        found = json.loads(out)
        assert (code, found["ok"], found["stops_at"], found["ids_all"]) == (2, False, 1, True)
        said = found["bad_updates"]
        named = repr(c) if ids == "text" else c
        assert "log.csv, row 0: update 1: " in said[0]
        assert f"(id {named}); row 2 of {tmp_path}/data.csv" in said[0]
        assert "log.csv, row 1: update 3: " in said[1]
        assert "data.csv" not in said[1]
        assert "data.csv, row 3: " in said[2] or ids == "row"
        assert "log.csv, row 3: update" in said[-1]
        assert found["refused"] == len(said) == (3 if ids == "row" else 4)
        code, _, err = raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")
        assert code == 2
        assert "log.csv, row 0: update 1: " in err
        code, out, _ = raydt("validate", tmp_path / "job.yaml", "--set", "stream.on_error=skip")
        assert code == 0
        valid = message("commands.valid_but", skipped=f"{len(said)} bad updates")
        assert out.splitlines()[-1].endswith(valid.at("job.yaml"))

    def test_the_search_for_ids_is_bounded_and_says_so(self, raydt, tmp_path, monkeypatch):
        monkeypatch.setattr("pipelines.id_check.MOST_UPDATES", 3)
        (tmp_path / "data.csv").write_text("k,a,y\n1,1,u\n2,2,v\n3,3,v\n1,4,u\n")
        config = {**JOB, "source": {"kind": "csv", "path": "data.csv", "id": "k"}, "stream": {"model": "incremental"}}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 0
        assert re.search(
            rf"^ids +{message('commands.other_ids', updates='3 updates', found=message('commands.right_ids'))}$",
            out,
            re.MULTILINE,
        )

    def test_a_window_stops_at_an_id_that_is_live(self, raydt, tmp_path):
        (tmp_path / "data.csv").write_text("k,a,y\n1,1,u\n2,2,v\n1,3,v\n")
        config = {**JOB, "source": {"kind": "csv", "path": "data.csv", "id": "k"}}
        config["stream"] = {"model": "sliding_window", "window": 9}
        (tmp_path / "job.yaml").write_text(dump_yaml(config))
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 2
        assert re.search(r"^bad update +.*data.csv, row 2, column 'k': id 1: ", out, re.MULTILINE)
        assert out.splitlines()[-1].endswith(message("commands.stops", update=2).at("job.yaml"))

    def test_a_deletion_in_the_warmup_ends_it_with_a_warning(self, raydt, tmp_path):
        (tmp_path / "log.csv").write_text("id,after\n1,40\n2,20\n")
        stream = {"model": "deletion_log", "deletion_log": "log.csv", "warmup": 30}
        (tmp_path / "job.yaml").write_text(dump_yaml({**JOB, "stream": stream}))
        early = message("runs.early_warmup", updates=20, warmup=30, op="delete")
        code, out, _ = raydt("validate", tmp_path / "job.yaml")
        assert code == 0
        assert str(early) in out
        assert raydt("replay", tmp_path / "job.yaml", "--out", tmp_path / "run")[0] == 0
        assert (tmp_path / "run" / "log.jsonl").read_text().count(str(early)) == 1
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["early_warmup"] == {"updates": 20, "warmup": 30, "op": "delete"}
        page = tmp_path / "page.html"
        assert raydt("report", tmp_path / "run", "--out", page)[0] == 0
        assert str(early) in page.read_text()

    def test_a_data_file_is_not_taken_for_a_config(self, raydt, tmp_path):
        pq.write_table(pa.table({"a": [1]}), tmp_path / "data.parquet")
        assert message("configs.data_file") in raydt("validate", tmp_path / "data.parquet")[2]

    def test_prints_the_schema(self, raydt):
        code, out, _ = raydt("validate", "--schema")
        assert code == 0
        assert {"source", "stream", "learner"} <= json.loads(out)["properties"].keys()

    @pytest.mark.parametrize("name", ["fudyadt", "gbdt", "laptop", "cluster"])
    def test_configs_of_the_repository_can_be_run(self, raydt, name):
        assert raydt("validate", ROOT / "configs" / f"{name}.yaml")[0] == 0

    @pytest.mark.turns(1)
    @pytest.mark.parametrize("kind", ["fudyadt", "gbdt", "confidence_tree"])
    def test_ids_as_labels_are_a_warning_and_then_refused(self, raydt, tmp_path, kind):
        def written(labels):
            lines = [f"{row},id{row % labels}" for row in range(3000)]
            (tmp_path / "data.csv").write_text("\n".join(["a,y", *lines, ""]))
            config = {"source": {"kind": "csv", "path": "data.csv"}, "learner": {"kind": kind}}
            config |= {"stream": {"model": "incremental", "warmup": 50}, "cluster": {"backend": "in_process"}}
            (tmp_path / "job.yaml").write_text(dump_yaml(config))
            return tmp_path / "job.yaml"

        result = json.loads(raydt("validate", written(100), "--json")[1])
        assert (result["ok"], result["warnings"]) == (True, [])
        result = json.loads(raydt("validate", written(1000), "--json")[1])
        assert (result["ok"], result["bad_rows"]) == (True, [])
        found = {"column": "y", "classes": 1000, "rows": 3000, "most": MOST_CLASSES, "numeric": for_numbers()}
        assert result["warnings"] == [message("configs.many_classes", **found)]
        assert re.search(r"^warning +column 'y' ", raydt("validate", tmp_path / "job.yaml")[1], re.MULTILINE)
        for command in ("validate", "replay"):  # before anything is learned, and no row to pass over
            for on_error in ("error", "skip"):
                out = ("--out", tmp_path / on_error) if command == "replay" else ()
                code, _, err = raydt(command, written(1500), "--set", f"stream.on_error={on_error}", *out)
                assert code == 2
                assert "row 1000, column 'y': label 'id1000' " in err
                assert "1,500 different labels" in err
                if command == "replay":
                    assert json.loads((tmp_path / on_error / "summary.json").read_text())["updates"] == 0
