"""An update of models by key makes of each key what the same update makes of a run of its rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pipelines
from pipelines.saved_runs import open_state
from pipelines.updating import apply_changes
from raydt.keyed.groups import digest_of
from raydt.sessions.receipt import Receipt
from tests.cases import Trial, every_case
from tests.keyed_runs import KEYS, by_day, of_keys, replayed, rows_of, table, what_is_held
from tests.small_tables import examples, written


def inserted(trial: Trial, key: str, seed: int, n: int = 5) -> list[dict[str, Any]]:
    return [{**row, "id": f"{key}{row['id']} {seed}", "key": key} for row in examples(n, seed)]


def told_by(receipt: Receipt) -> list[Any]:
    """What a receipt says, but for the time that it took."""
    work = {name: count for name, count in receipt.work.items() if name != "seconds"}
    rows = {name: column.tolist() for name, column in receipt.deletions.items()}
    return [receipt.digest_before, receipt.digest_after, work, repr(rows), receipt.inserted.tolist()]


def live_ids(place: Path, key: str) -> list[str]:
    saved = of_keys(place).saved(key)
    names = dict(zip(saved.components["stream"]["id_codes"].tolist(), saved.components["stream"]["ids"], strict=True))
    return [names[code] for code in saved.arrays["id"].tolist()]


@every_case("updates by key", often=by_day)
def test_a_key_is_updated_as_a_run_of_its_own(trial: Trial, tmp_path: Path) -> None:
    """By lists without the key, then by a change log; a key that is not named stays, and one that is new begins."""
    rows = rows_of(trial)
    run = replayed(trial, tmp_path / "all", rows, by_key=True)
    first, second, idle = KEYS
    new = trial.case.warmup + 6
    gone = live_ids(run, first)[-2:]
    more = [*inserted(trial, first, 5), *inserted(trial, "late", 7, new), *inserted(trial, second, 8)]
    changes = [{**row, "op": "insert"} for row in (*inserted(trial, second, 9), *inserted(trial, "later", 11, new))]
    changes += [{**changes[0], "op": "delete"}, {**changes[1], "op": "update", "id": changes[2]["id"]}]
    deletions = tmp_path / "more.arrow"
    written(deletions, table(more))
    written(tmp_path / "changes.arrow", table(changes))
    receipt = pipelines.update(run, delete=gone, insert=str(deletions), out=tmp_path / "states/lists")
    told = apply_changes(tmp_path / "states/lists", tmp_path / "changes.arrow", out=tmp_path / "changed")
    after = of_keys(Path(told.state))
    digests = {}
    for place, key in enumerate([first, second, "late", "later", idle]):
        alone = tmp_path / str(place)
        mine, listed, changed = ([row for row in part if row["key"] == key] for part in (rows, more, changes))
        begun = mine or [{**row, "op": "insert"} for row in listed] or changed
        state = replayed(trial, alone, begun, by_key=False, output={"predictions": False})
        assert receipt.by_key.keys() == {first, second, "late"}
        if key in receipt.by_key and mine:
            part = written(alone / "more.arrow", table(listed))
            own = pipelines.update(state, delete=gone if key == first else None, insert=str(part), out=alone / "lists")
            found = receipt.by_key[key]
            assert told_by(own) == told_by(found)
            state = alone / "lists"
        if changed and begun is not changed:
            part = written(alone / "changes.arrow", table(changed))
            state = Path(apply_changes(state, part, out=alone / "changed").state)
        expected, found = what_is_held(open_state(state)[0]), what_is_held(after.saved(key))
        if mine and key != idle:
            assert found == expected
        assert found["digest"] == expected["digest"]
        digests[key] = expected["digest"]
    assert told.receipt is not None
    assert told.receipt.digest_before == receipt.digest_after
    assert told.receipt.digest_after == digest_of(digests) == after.counted().digest
    before = of_keys(tmp_path / "states/lists")
    same = [group for group in before.groups if repr(before.groups[group]) == repr(after.groups[group])]
    assert len(same) >= len(before.groups) - 2
