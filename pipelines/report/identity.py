"""Description of a run in words: its name, its data and stream, its key figures, and what it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pipelines.report.folder import RunFolder
from pipelines.report.quality import Quality, quality_of
from pipelines.report.recovery import checkpoints_in_words
from raydt.learners.description import Figure
from raydt.presentation.trees import feature_count
from raydt.presentation.words import ABSENT, Form, count, counted, duration, figure, moment, names, number, share, size

#: Name, value, and how a number is written.
ComparedFigure: TypeAlias = tuple[str, float | str | None, Form | None]


def name_of(run: RunFolder, location: str) -> str:
    """The run's name, or its folder's."""
    return str(run.summary.get("name") or _folder_name(location))


def labels(runs: list[RunFolder], locations: Sequence[str]) -> list[str]:
    """Labels that distinguish several runs: name and folder; the folder alone, or its location, where names collide."""
    names_of = [name_of(run, location) for run, location in zip(runs, locations, strict=True)]
    folders = [_folder_name(location) for location in locations]
    result = []
    for name, folder, location in zip(names_of, folders, locations, strict=True):
        if folders.count(folder) > 1:
            folder = location
        result.append(folder if name == folder or names_of.count(name) > 1 else f"{name} ({folder})")
    return result


def _folder_name(location: str) -> str:
    """The last part of a path or URI."""
    return location.rstrip("/").rpartition("/")[2] if "://" in location else Path(location).resolve().name


def f1_name(run: RunFolder) -> str | None:
    """``F1 (label)`` of the positive class, or None where the run has none."""
    if number(run.summary.get("metrics"), "f1") is None:
        return None
    classes = run.names.classes
    return f"F1 ({classes[1]})" if len(classes) > 1 else "F1"


def what_ran(run: RunFolder) -> str:
    """Learner, data and stream in one line."""
    return f"{learner_of(run)} on {_data(run)}, {_stream(run)}"


def facts(run: RunFolder, location: str) -> list[tuple[str, str]]:
    """Return what ran, when, for how long, how it ended, and the path of its folder."""
    summary, labels = run.summary, run.names.classes
    label, shards = summary.get("label"), summary.get("shards")
    backend = str(summary.get("backend") or ABSENT).replace("_", " ")
    if shards is not None and (backend != "in process" or summary.get("rounds")):
        backend += f", {counted(shards, 'shard')}"
    rows = [
        ("Learner", learner_of(run)),
        ("Data", _data(run)),
        ("Stream", _stream(run)),
        ("Features", count(feature_count(run.names.features) or None)),
        ("Label", ": ".join(part for part in (str(label or ""), names(labels)) if part) or ABSENT),
        ("Started", moment(summary.get("started"))),
        ("Processing time", duration(summary.get("seconds"))),
        ("Start-up", duration(summary.get("startup_seconds"))),
        ("Backend", backend),
        ("Status", _status(run)),
        ("Ended by", str(summary.get("exit_reason") or ABSENT).replace("_", " ")),
    ]
    for title, key in (("Refused updates", "refused"), ("Bad rows skipped", "skipped"), ("Restarts", "restarts")):
        if summary.get(key):
            rows.append((title, count(summary[key])))
    rows += [("Checkpoints", checkpoints_in_words(summary) or ABSENT), ("Run folder", location)]
    return [(title, value) for title, value in rows if value != ABSENT]


def key_figures(run: RunFolder, own: Sequence[Figure]) -> list[Figure]:
    """Value, name and remark of each key figure; ``own`` are the learner's."""
    summary = run.summary
    scores, baselines = summary.get("metrics"), summary.get("baselines")
    quality = quality_of(scores)
    compared = [f"{name} {quality.form(number(baselines, key))}" for key, name in quality.baselines.items()]
    f1, macro, kappa = f1_name(run), share(number(scores, "macro_f1")), figure(number(scores, "kappa"))

    def total(key: str) -> str:
        return count(summary.get(key))

    updates = [f"{total('inserts')} inserts", f"{total('deletes')} deletes"]
    updates += [f"{total('refused')} refused"] if summary.get("refused") else []
    here = summary.get("backend") == "in_process"
    exchanged = "all in one process" if here else f"{size(summary.get('bytes_exchanged'))} exchanged"
    figures = [
        (total("updates"), "updates", ", ".join(updates)),
        (figure(summary.get("updates_per_second")), "updates per second", "start-up and report excluded"),
        (quality.form(number(scores, quality.score)), quality.name, ", ".join(compared)),
        (figure(number(scores, "r2")), quality.titles["r2"], f"mean absolute error {figure(number(scores, 'mae'))}")
        if "r2" in quality.titles
        else (share(number(scores, "f1")), f1, f"macro F1 {macro}, kappa {kappa}")
        if f1
        else (macro, "macro F1", f"kappa {kappa}"),
        (total("active"), "live examples", f"of {total('inserts')} inserted"),
        *own,
        (total("rounds"), "rounds with shards", exchanged),
    ]
    return [(value, name, remark) for value, name, remark in figures if value != ABSENT]


def compared_figures(run: RunFolder, quality: Quality, own: Sequence[str]) -> list[ComparedFigure]:
    """Figures that several runs are compared by, the same names for every run.

    ``own`` are those of their learners; one that a run's learner does not have is absent.
    """
    summary = run.summary
    scores, baselines = summary.get("metrics"), summary.get("baselines")
    has = dict(run.description.compared(summary))

    def total(name: str, key: str) -> ComparedFigure:
        return name, number(summary, key), count

    return [
        ("Status", _status(run), None),
        total("Updates", "updates"),
        ("Updates/s", number(summary, "updates_per_second"), figure),
        (quality.titles[quality.score], number(scores, quality.score), quality.form),
        *((name.capitalize(), number(baselines, key), quality.form) for key, name in quality.baselines.items()),
        *((quality.titles[key], number(scores, key), form) for key, form in quality.compared.items()),
        total("Live", "active"),
        *((name, has.get(name, ABSENT), None) for name in own),
        total("Restarts", "restarts"),
        ("Audit", _audited(summary.get("audit")), None),
    ]


def _audited(audit: Any) -> str:
    """The verdicts of an audit in a word or two."""
    if not isinstance(audit, dict):
        return "not run"
    if audit.get("conformance") != "holds":
        return "not conformant"
    return str(audit.get("feasibility")).replace("_", " ")


def environment(run: RunFolder) -> list[tuple[str, str]]:
    """Versions of what the results could depend on, and the memory used."""
    summary = run.summary
    versions = summary.get("versions")
    rows = [("raydt", str(summary.get("raydt_version") or ABSENT))]
    rows += [(str(name), str(version)) for name, version in (versions if isinstance(versions, dict) else {}).items()]
    return [*rows, ("Peak memory of all processes", size(summary.get("peak_rss_bytes")))]


def digests(run: RunFolder) -> list[tuple[str, str]]:
    """Return the digests of model, config and data."""
    titles = {
        "model_digest": "Model digest",
        "config_hash": "Model config hash",
        "source_fingerprint": "Source fingerprint",
    }
    return [(title, str(run.summary[key])) for key, title in titles.items() if run.summary.get(key)]


def _status(run: RunFolder) -> str:
    return str(run.summary.get("status") or "unfinished")


def learner_of(run: RunFolder) -> str:
    """Kind of the learner."""
    return run.kind or "unknown learner"


def _data(run: RunFolder) -> str:
    source = run.section("source")
    kind, generator, path = str(source.get("kind") or "unknown data"), source.get("generator"), source.get("path")
    if isinstance(path, list):
        return names([Path(str(part)).name for part in path], 3)
    return Path(str(path)).name if path else f"{kind} {generator}" if generator else kind


def _stream(run: RunFolder) -> str:
    stream = run.section("stream")
    model = str(stream.get("model") or "unknown stream")
    words = model.replace("_", " ")
    if model == "sliding_window":
        return f"{words} of {count(stream.get('window'))}"
    if model == "random_updates":
        return f"{words}, inserts with probability {figure(stream.get('insert_probability'))}"
    if model == "batches":
        return f"{words} to {names([str(step) for step in stream.get('steps', ())], 5)}, {stream.get('removal_order')}"
    if model == "time_window":
        return f"{words} of {stream.get('duration')}"
    return words
