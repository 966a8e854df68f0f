"""What a run lost, on its page, beside others and in its lines; and runs of versions that did not say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fabricated_run import RECOVERED, fabricated_run, table_named
from test_report_page import Page, page_of

from pipelines.display import run_lines
from pipelines.report.compare import compare
from pipelines.report.facts import facts
from pipelines.report.folder import read_run
from pipelines.report.tables import recoveries
from raydt.presentation.blocks import Table

LOST = "Losses and recoveries"


def recovered(folder: Path, **changes: Any) -> Path:
    return fabricated_run(folder, rows=100, rebuilds=50, **(RECOVERED | changes))


def cells(folder: Path) -> list[tuple[str, ...]]:
    return [row.cells for block in recoveries(read_run(folder)) if isinstance(block, Table) for row in block.rows]


def checkpoints(folder: Path) -> str | None:
    return dict(facts(read_run(folder), "run")).get("Checkpoints")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(recovered(tmp_path_factory.mktemp("recovered") / "run"))


def test_each_recovery_says_what_was_lost_from_where_it_went_on_and_what_it_cost(tmp_path: Path) -> None:
    folder = recovered(tmp_path / "run")
    assert cells(folder) == [
        ("3,700", "shard 1 (pid 4712 on node-a) died", "by itself", "the beginning", "3,700", "420 ms"),
        ("6,200", "the driver was killed", "by raydt resume", "checkpoint at update 4,096", "2,104", "5.2 s"),
    ]
    assert checkpoints(folder) == "12 written, 1 failed, 3.4 MB in 1.25 s, the last at update 10,000"


def test_the_page_has_a_section_that_says_what_it_cost(page: Page) -> None:
    assert "recovery" in page.ids
    assert {"href": "#recovery"} in page.all("a")
    for text in (LOST, "shard 1 (pid 4712 on node-a) died", "checkpoint at update 4,096", "12 written, 1 failed"):
        assert text in page.words, text
    assert "Recovered once, resumed once, 5,804 updates repeated, 5.62 s in all." in page.words
    assert "1 checkpoint could not be written" in page.words


def test_charts_over_the_stream_are_marked_where_it_recovered(page: Page) -> None:
    marks = [attributes["d"] for attributes in page.all("path") if attributes.get("class") == "upright"]
    assert len(marks) > 5
    assert set(marks) == {"M370 0V1000M620 0V1000"}  # of 10,000 updates
    assert page.words.count("Dashed uprights: recoveries.") == page.words.count("Prequential accuracy") + 5


def test_a_loss_beyond_the_end_of_the_run_is_not_drawn(tmp_path: Path) -> None:
    late = [{**RECOVERED["recoveries"][0], "at_update": 10_001}]
    folder = recovered(tmp_path / "run", recoveries=late)
    page = page_of(folder)
    assert cells(folder)[0][0] == "10,001"
    assert not [attributes for attributes in page.all("path") if attributes.get("class") == "upright"]


def test_a_resumed_run_whose_end_is_not_known_is_marked_where_it_went_on(tmp_path: Path) -> None:
    resumed = {"epoch": 2, "kind": "resumed", "what": "resumed after SIGTERM", "at_update": None, "from_update": 5000}
    folder = recovered(tmp_path / "run", restarts=0, recoveries=[{**resumed, "seconds": 4.0}])
    assert cells(folder) == [
        ("\u2013", "resumed after SIGTERM", "by raydt resume", "checkpoint at update 5,000", "\u2013", "4 s")
    ]
    page = page_of(folder)
    assert "Resumed once, 4 s in all. The model" in page.words
    assert {a["d"] for a in page.all("path") if a.get("class") == "upright"} == {"M500 0V1000"}


@pytest.mark.parametrize("older", [True, False])
def test_a_run_that_lost_nothing_has_no_such_section(tmp_path: Path, older: bool) -> None:
    folder = fabricated_run(tmp_path / "run", rows=20, rebuilds=20)
    if older:
        summary = json.loads((folder / "summary.json").read_text())
        for key in ("restarts", "recoveries", "checkpoints"):
            del summary[key]
        (folder / "summary.json").write_text(json.dumps(summary))
    page = page_of(folder)
    assert "recovery" not in page.ids
    assert "ecover" not in page.words
    assert (checkpoints(folder) is None) == older


def test_failed_checkpoints_alone_are_worth_the_section(tmp_path: Path) -> None:
    none = {"written": 0, "failed": 2, "seconds": 0.0, "bytes": 0, "last": None}
    folder = fabricated_run(tmp_path / "run", rows=20, rebuilds=20, checkpoints=none)
    page = page_of(folder)
    assert "2 checkpoints could not be written; see log.jsonl for the cause." in page.words
    assert checkpoints(folder) == "0 written, 2 failed"
    assert LOST not in page.words


def test_restarts_without_a_list_are_still_said(tmp_path: Path) -> None:
    page = page_of(fabricated_run(tmp_path / "run", rows=20, rebuilds=20, restarts=3, recoveries=[]))
    assert "Recovered 3 times. The model is identical to that of an uninterrupted run." in page.words


@pytest.mark.parametrize(
    "damaged",
    [
        {"recoveries": "two", "checkpoints": 5, "restarts": None},
        {"recoveries": [7, None, {}], "checkpoints": {"written": "many", "failed": None}, "restarts": "x"},
        {"recoveries": [{"at_update": "<b>", "what": "</script><b>", "seconds": True, "from_update": -1}]},
    ],
)
def test_a_damaged_summary_still_gets_its_page(tmp_path: Path, damaged: dict[str, Any]) -> None:
    folder = recovered(tmp_path / "run", **damaged)
    page = page_of(folder)
    assert len(page.scripts) == 1
    assert ("</script><b>" in page.text) == ("</script><b>" in json.dumps(damaged))
    assert not re.search(r"\b(nan|None|inf)\b", f"{cells(folder)} {checkpoints(folder) or ''}")


def test_a_run_that_gave_up_promises_no_model(tmp_path: Path) -> None:
    page = page_of(recovered(tmp_path / "run", status="failed", model_digest=None))
    assert "Recovered once" in page.words
    assert "an uninterrupted run" not in page.words


def test_many_recoveries_are_cut_short(tmp_path: Path) -> None:
    many = [{**RECOVERED["recoveries"][0], "at_update": 100 * n} for n in range(1, 71)]
    folder = recovered(tmp_path / "run", recoveries=many, restarts=70)
    page = page_of(folder)
    assert "Recovered 70 times" in page.words
    assert "The table shows the last 50 recoveries." in page.words
    assert [row[0] for row in cells(folder)] == [f"{100 * n:,}" for n in range(21, 71)]


def test_restarts_are_compared_only_where_there_are_some(tmp_path: Path) -> None:
    calm = read_run(fabricated_run(tmp_path / "calm", rows=20, rebuilds=20))
    hurt = read_run(recovered(tmp_path / "hurt"))
    rows = [row.cells for row in table_named(compare([calm, hurt], ["calm", "hurt"]), "Figures").rows]
    assert ("Restarts", "0", "1") in rows
    assert "Restarts" not in str(compare([calm, calm], ["a", "b"]))


def test_the_lines_of_a_run_say_it_too(tmp_path: Path) -> None:
    def lines(folder: Path) -> str:
        summary = json.loads((folder / "summary.json").read_text())
        return run_lines({"replaced": 0, "queries": 0, **summary}, "run")

    said = lines(recovered(tmp_path / "hurt"))
    assert "losses       recovered once, resumed once, 5,804 updates repeated, 5.62 s in all" in said
    assert "checkpoints  12 written, 1 failed, 3.4 MB in 1.25 s, the last at update 10,000" in said
    assert "losses" not in lines(fabricated_run(tmp_path / "calm", rows=20, rebuilds=20))
