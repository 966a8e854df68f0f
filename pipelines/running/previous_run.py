"""Facts about a run that an earlier process began: from its summary, its newest checkpoint, or its log.

Invariant: a run has one beginning, one name and one sequence of incarnations, however many processes have worked on it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pipelines.config import Config
from pipelines.logs import LOG
from pipelines.run_folder import RunFolder
from pipelines.running.records.recoveries import WITHDRAWN
from raydt.messages import message


@dataclass(frozen=True)
class Past:
    """The run until now."""

    name: str  #: Of its config.
    id: str  #: Drawn by its first process; one that has left neither checkpoint nor log counts as none.
    started: datetime  #: When its first process began.
    epoch: int  #: Incarnations so far.
    recoveries: list[dict[str, Any]]  #: As in the summary.
    ended: str  #: What ended its last process, in words.
    lineage: list[dict[str, Any]]  #: Updates that the run has taken in (``raydt resume --from``).
    holdout: dict[str, Any] | None = None  #: Score of a training run, if it is known.
    updates: int | None = None  #: Where that process was then (a keyed one by rows); None if it said nothing.


def kept(
    config: Config,
    id: str,
    started: datetime,
    epoch: int,
    recoveries: Sequence[Mapping[str, Any]],
    holdout: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the JSON values a checkpoint keeps for :func:`past_of`."""
    entries = [dict(entry) for entry in recoveries]
    run = {"name": config.name, "id": id, "started": started.isoformat(), "epoch": epoch, "recoveries": entries}
    return run if holdout is None else {**run, "holdout": dict(holdout)}


def past_of(folder: RunFolder, summary: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Past:
    """Return the past of a run by the summary of its last process and ``meta`` of its newest checkpoint."""
    records = list(_records(folder))
    saved = dict((meta or {}).get("run", {}))
    known = [dict(summary or {}), saved, _first(records)]  # the best first

    def best(key: str, default: Any) -> Any:
        return next((entry[key] for entry in known if entry.get(key) is not None), default)

    lineages = [entry.get("lineage") or [] for entry in (summary or {}, meta or {}, *records)]
    recoveries = _together([*best("recoveries", []), *_recoveries(records)])
    epochs = [saved.get("epoch"), *(entry.get("epoch") for entry in (*recoveries, *records))]
    return Past(
        name=str(best("name", "run")),
        id=str(best("id", None) or new_id()),
        started=_moment(best("started", None)),
        epoch=max((epoch for epoch in epochs if isinstance(epoch, int)), default=0),
        recoveries=recoveries,
        ended=str(summary["exit_reason"]) if summary is not None else message("runs.driver_lost"),
        lineage=max(lineages, key=len),
        holdout=next((one["holdout"] for one in (saved, *records) if "holdout" in one), None),
        updates=int(summary.get("rows", summary["updates"])) if summary is not None else None,
    )


def _records(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """Records of the log; a line that was cut short is passed over."""
    for line in folder.read(LOG).splitlines() if folder.has(LOG) else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _recoveries(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the recoveries in the log, without those withdrawn later."""
    found: list[dict[str, Any]] = []
    for record in records:
        entry = record.get("recovery")
        if not isinstance(entry, dict):
            continue
        if record.get("event") == WITHDRAWN:
            one = (entry.get("epoch"), entry.get("kind"))
            found = [other for other in found if (other.get("epoch"), other.get("kind")) != one]
        else:
            found.append(entry)
    return found


def _together(entries: Iterable[Any]) -> list[dict[str, Any]]:
    """Return entries of several places, each once, as the first place has it: none of them knows all."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("epoch"), int) and isinstance(entry.get("kind"), str):
            known = found.setdefault((entry["epoch"], entry["kind"]), entry)
            known |= {key: value for key, value in entry.items() if known.get(key) is None}
    return [found[key] for key in sorted(found)]  # of one incarnation, its loss came before the driver's


def _first(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = next((record for record in records if record.get("event") == "run_started"), {})
    return {"name": first.get("config"), "id": first.get("id"), "started": first.get("time")}


def new_id() -> str:
    """Draw the id of a run: 32 hexadecimal digits, which decide nothing."""
    return secrets.token_hex(16)


def _moment(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return datetime.now(timezone.utc)
