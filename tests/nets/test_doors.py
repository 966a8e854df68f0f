"""An id, a subject, a key, a label and a category mean one value, whatever door they enter by, or are refused there.

A value is drawn as text and written where a column is declared to hold text, or integers. Text means itself. A number
means what its digits say, exactly. Where a column of CSV is not declared, two spellings are two values, but for blanks
around an integer and a point and zeros behind it.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from pandas._libs.parsers import STR_NA_VALUES
from pydantic import TypeAdapter

from pipelines.auditing import _hashes
from pipelines.purging.erasure import read_ids
from pipelines.serving.served import RequestReader, parsed
from pipelines.updating.changes import StateNames
from pipelines.updating.lists import ListChanges, open_deletions, open_insertions
from pipelines.updating.logs import find_changes, source_of
from raydt import FullyDynamicTreeClassifier, KeyedClassifier
from raydt.errors import RaydtError
from raydt.estimators.arguments import keys_of
from raydt.estimators.keyed_models import checked_keys
from raydt.examples.updates import CLASSES
from raydt.keyed.packing import SavedKeys
from raydt.messages import text as plain
from raydt.sources.divided import open_source
from raydt.sources.live.followed import FollowedSource
from raydt.sources.live.kafka import Kafka, KafkaChanges
from raydt.sources.options import SourceOptions
from tests import volume
from tests.cases import open_state

pytestmark = pytest.mark.share

ROLES = ("id", "subject", "key", "label", "category")
#: A text that messages quote in part.
LONG = "x" * 3000
#: Spellings that programs are known to write, or to take for each other.
KNOWN = (
    *(
        "7",
        "007",
        "7.0",
        "7.00",
        "-7",
        "+7",
        " 7",
        "07",
        "0",
        "-0",
        "00",
        "1.10",
        "1.1",
        "1e5",
        "100000",
        "1E5",
        "1_000",
    ),
    *(
        "0x10",
        "16",
        "0o17",
        "",
        "null",
        "NaN",
        "nan",
        "NA",
        "NULL",
        "N/A",
        "<NA>",
        "#N/A",
        "None",
        "true",
        "True",
        "false",
        "inf",
        "ä",
        "\uff17",
        "\u0667",
        "²",
    ),
    *("9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *('"7"', "{}", "[7]", "a,b", LONG, "--7", "2024-01-01", "1,5", ".5", "5."),
)


class Refused(NamedTuple):
    """A value that a door refuses."""

    id: str


def drawn(seed: int, n: int) -> list[str]:
    """Known spellings, and numbers with zeros, signs, points, blanks and exponents around them."""
    rng = random.Random(seed)
    found = dict.fromkeys(KNOWN)
    while len(found) < len(KNOWN) + n:
        digits = str(
            rng.choice([rng.randrange(30), rng.randrange(10**6), 2**53 + rng.randrange(4), rng.getrandbits(64)])
        )
        text = rng.choice(["", "", "0", "00", "-", "+", " "]) + digits
        found[text + rng.choice(["", "", "", ".0", ".50", "e0", "e2", " ", "x"])] = None
    return list(found)


def number(text: str) -> Decimal | None:
    """The number that digits write, None if they write none."""
    try:
        found = Decimal(text.strip()) if text.isascii() and "_" not in text else Decimal("NaN")
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def require(role: str, kind: str, text: str, found: Any, where: Any, *, most: int = 2**63) -> None:
    """Require that a door takes a spelling for what it means, or refuses it, but no text or usual integer < most."""
    said = f"{where}: the {role} {text[:40]!r}, of a column of {kind}, is {str(found)[:60]!r}"
    if kind == "text":
        assert isinstance(found, Refused) or (isinstance(found, str) and found == text), said
        assert not (text and isinstance(found, Refused)), said
        return
    value = number(text)
    whole = value is not None and value == value.to_integral_value() and -(2**63) <= value < 2**63
    if isinstance(found, Refused):
        assert not (whole and str(int(value)) == text and abs(value) < most), said
        return
    assert not isinstance(found, str | bool), said
    assert value is not None, said
    if role in ("label", "category") and set(text) & set(".eE"):  # a floating-point number
        assert found == float(text) or Decimal(found) == value, said  # rounded as it is written, or exact
    else:
        assert whole, said
        assert Decimal(found) == value, said


# ---------------------------------------------------------------------------------------- sources

COLUMNS = {"id": "id", "subject": "who", "key": "shop", "label": "y", "category": "c"}


def entered(source: Any, role: str) -> list[Any]:
    """Return the value of each row of a source in a role."""
    found: list[Any] = []
    for rows in source.rows():
        for place in range(len(rows)):
            if place in rows.bad:
                found.append(Refused(rows.bad[place].message.id))
            elif role == "id":
                found.append(rows.id[place].item() if rows.names is None else rows.names[place])
            elif role == "subject":
                found.append(rows.subject[place])
            elif role == "key":
                found.append(source.keys[rows.key[place]])
            elif role == "label":
                found.append(source.classes[rows.y[place]])
            else:
                at = source.features.names.index("c")
                found.append(source.categories()["c"].values[int(rows.X[place, at])])
    return found


def cells(role: str, texts: Sequence[str], written: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Rows in which one column has the spellings, and the others what is usual."""
    rows = []
    for place, text in enumerate(texts):
        usual = {
            "id": place,
            "who": place % 3,
            "shop": place % 2,
            "y": place % 2,
            "c": "abc"[place % 3],
            "a": place / 4,
        }
        rows.append(usual | {COLUMNS[role]: written(text)})
    return rows


def options(role: str, form: str, kind: str | None) -> dict[str, Any]:
    """Options of a source whose column of a role holds text or integers."""
    given: dict[str, Any] = {
        "kind": form,
        "path": f"t.{form}",
        "id": "id",
        "features": ["a", "c"],
        "categorical": ["c"],
    }
    given |= {role: COLUMNS[role]} if role in ("subject", "key") else {}
    if form == "csv" and kind is not None and role != "category":
        given["text" if kind == "text" else "integers"] = [COLUMNS[role]]
    return given


def from_source(role: str, form: str, kind: str | None, folder: Path) -> list[Any]:
    found = entered(
        open_source(TypeAdapter[Any](SourceOptions).validate_python(options(role, form, kind)), folder), role
    )
    return found


def csv_cell(value: Any) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set('",\n') else text


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    lines = [",".join(rows[0]), *(",".join(map(csv_cell, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def json_lines(rows: Sequence[Mapping[str, Any]], column: str, kind: str) -> list[str]:
    """Rows as objects; a spelling of a column of numbers is there as it is written, where JSON takes it for a value."""
    lines = []
    for row in rows:
        text = row[column]
        written = json.dumps(text)
        if kind == "integer" and isinstance(text, str):
            try:
                is_text = isinstance(json.loads(text, parse_constant=lambda name: json.loads("{")), str)
            except ValueError:
                is_text = True
            written = json.dumps(text) if is_text else text
        rest = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in row.items() if name != column]
        lines.append("{" + ", ".join([*rest, f"{json.dumps(column)}: {written}"]) + "}")
    return lines


def csv_door(role: str, kind: str, texts: list[str], folder: Path) -> list[Any]:
    write_csv(folder / "t.csv", cells(role, texts, str))
    return from_source(role, "csv", kind, folder)


def jsonl_door(role: str, kind: str, texts: list[str], folder: Path) -> list[Any]:
    usual = "z" if kind == "text" else "5"  # so that the column has a type
    lines = json_lines(cells(role, [usual, *texts], str), COLUMNS[role], kind)
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n")
    return from_source(role, "jsonl", kind, folder)[1:]


def typed(kind: str, texts: list[str], as_type: str) -> pa.Array:
    """A column of Arrow that holds the texts, or the integers that they write; null where there is none."""
    if kind == "text":
        return pa.array(texts, pa.string()).cast(pa.large_string() if as_type == "large" else pa.string())
    values = [number(text) for text in texts]
    whole = [None if v is None or v != int(v) or not -(2**63) <= v < 2**63 else int(v) for v in values]
    return pa.array(whole, pa.int64())


def arrow_door(role: str, kind: str, texts: list[str], folder: Path, form: str, as_type: str = "") -> list[Any]:
    column = typed(kind, texts, as_type)
    rows = cells(role, texts, str)
    table = pa.table({name: [row[name] for row in rows] for name in rows[0] if name != COLUMNS[role]})
    table = table.append_column(COLUMNS[role], column.dictionary_encode() if as_type == "dictionary" else column)
    write = pq.write_table if form == "parquet" else partial(feather.write_feather, compression="uncompressed")
    write(table, folder / f"t.{form}")
    return from_source(role, form, kind, folder)


class Message:
    """A message of a topic."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class Topic(KafkaChanges):
    """A topic whose messages are there."""

    def __init__(self, options: Kafka, messages: list[Message]) -> None:
        self.name, self._options, self._reading, self._here = "topic", options, CLASSES, messages

    def plan(self, after: Any) -> Any:
        return {} if after is None else None

    def place(self, plan: Any) -> str:
        return "here"

    def read(self, plan: Any, columns: Sequence[str]) -> Iterator[Any]:
        yield self._rows(self._here)


def topic(role: str, kind: str, messages: list[Message], envelope: str | None) -> FollowedSource:
    given = {"kind": "kafka", "path": "kafka://x/t", "id": "id", "features": ["a", "c"], "categorical": ["c"]}
    given |= {role: COLUMNS[role]} if role in ("subject", "key") else {}
    text = {"c"} | ({COLUMNS[role]} if kind == "text" else set())
    text -= {"c"} if role == "category" and kind == "integer" else set()
    options = Kafka.model_validate({**given, "envelope": envelope, "text": sorted(text)})
    return FollowedSource(options, Topic(options, messages))


def kafka_door(role: str, kind: str, texts: list[str], folder: Path, envelope: str | None = None) -> list[Any]:
    messages = []
    for line in json_lines(cells(role, texts, str), COLUMNS[role], kind):
        wrapped = f'{{"after": {line}, "op": "c"}}' if envelope else line[:-1] + ', "op": "c"}'
        messages.append(Message(None, wrapped.encode()))
    return entered(topic(role, kind, messages, envelope), role)


def key_door(role: str, kind: str, texts: list[str], folder: Path, written: str) -> list[Any]:
    """Tombstones: the key is the text itself, a JSON value or an object with the id, at times in Connect's envelope."""
    keys = []
    for text in texts:
        literal = json_lines([{"id": text}], "id", kind)[0]
        key = {"raw": text, "json": literal.partition(": ")[2][:-1], "object": literal}[
            written.removeprefix("wrapped ")
        ]
        keys.append((f'{{"schema": {{}}, "payload": {key}}}' if written.startswith("wrapped") else key).encode())
    return entered(topic(role, kind, [Message(key, None) for key in keys], None), role)


def delta_door(role: str, kind: str, texts: list[str], folder: Path) -> list[Any]:
    deltalake = pytest.importorskip("deltalake")
    rows = cells(role, texts, str)
    table = pa.table({name: [row[name] for row in rows] for name in rows[0] if name != COLUMNS[role]})
    deltalake.write_deltalake(str(folder / "delta"), table.append_column(COLUMNS[role], typed(kind, texts, "")))
    given = options(role, "delta", None) | {"path": str(folder / "delta")}
    return entered(open_source(TypeAdapter[Any](SourceOptions).validate_python(given)), role)


SOURCES: dict[str, Callable[..., list[Any]]] = {
    "csv": csv_door,
    "jsonl": jsonl_door,
    "parquet": partial(arrow_door, form="parquet"),
    "parquet of dictionaries": partial(arrow_door, form="parquet", as_type="dictionary"),
    "arrow of large text": partial(arrow_door, form="arrow", as_type="large"),
    "kafka": kafka_door,
    "kafka in an envelope": partial(kafka_door, envelope="debezium"),
    "delta": delta_door,
}
WRITTEN = ("raw", "json", "object", "wrapped json", "wrapped object")
TOMBSTONES = {f"a key of kafka, {how}": partial(key_door, written=how) for how in WRITTEN}


def texts_of(night: int = 600, day: int = 10) -> list[str]:
    return drawn(59, night if volume.nightly else day)


@pytest.mark.turns(8)
@pytest.mark.parametrize("kind", ["text", "integer"])
@pytest.mark.parametrize("door", SOURCES)
def test_a_row_of_a_source_has_what_is_written(door: str, kind: str, tmp_path: Path) -> None:
    for role in ROLES:
        if kind == "integer" and role in ("label", "category") and door == "csv":
            continue  # which nobody can declare
        texts = texts_of()
        (tmp_path / role).mkdir()
        as_floats = door == "jsonl" or role == "category"
        for text, found in zip(texts, SOURCES[door](role, kind, texts, tmp_path / role), strict=True):
            require(role, kind, text, found, door, most=2**53 if as_floats else 2**63)


@pytest.mark.parametrize("kind", ["text", "integer"])
@pytest.mark.parametrize("door", TOMBSTONES)
def test_a_tombstone_names_what_is_written(door: str, kind: str, tmp_path: Path) -> None:
    texts = texts_of()
    for text, found in zip(texts, TOMBSTONES[door]("id", kind, texts, tmp_path), strict=True):
        raw = door.endswith("raw") and kind == "text"
        if raw and text[:1] in ('"', "{"):  # JSON, which a text may be by chance
            continue
        require("id", kind, text, found, door)


@pytest.mark.parametrize("role", ["id", "subject", "key", "label"])
def test_two_spellings_in_a_column_of_csv_that_nobody_declared_are_two_values(role: str, tmp_path: Path) -> None:
    texts, rng = texts_of(), random.Random(5)
    pairs = [("007", "7"), ("7", "007"), ("1.10", "1.1"), ("1e5", "100000"), ("0x10", "16"), ("-0", "0")]
    pairs += [tuple(rng.sample(texts, 2)) for _ in range(400 if volume.nightly else 10)]  # type: ignore[misc]
    for pair in pairs:
        write_csv(tmp_path / "t.csv", cells(role, pair, str))
        try:
            found = from_source(role, "csv", None, tmp_path)
        except RaydtError:
            continue
        one, other = found
        if isinstance(one, Refused) or isinstance(other, Refused) or one != other:
            continue
        values = [number(text) for text in pair]
        assert role == "label" or all(text.strip().partition(".")[0] == str(one) for text in pair), (pair, found)
        assert values[0] == values[1], (pair, found)


def test_a_spelling_that_comes_late_is_refused(tmp_path: Path) -> None:
    """The kind of a column follows from the first block, and no later value is bent to it."""
    for role in volume.spread(("id", "subject", "key", "label"), 2):
        rows = [*cells(role, ["3"] * 3, str), *cells(role, ["007", "0x10", "1e5", "-0", "8"], str)]
        write_csv(tmp_path / "t.csv", [*rows[:3], *[rows[0] | {"c": "long" * 60}] * 6_000, *rows[3:]])
        found = from_source(role, "csv", None, tmp_path)
        assert [one if isinstance(one, Refused) else int(one) for one in found[-5:-1]].count(3) == 0
        assert all(isinstance(one, Refused) for one in found[-5:-1]), (role, found[-5:])
        assert int(found[-1]) == 8


# ---------------------------------------------------------------------------------------- files of updates


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A state whose ids and subjects are all the spellings, as text, and one with integers."""
    found = {}
    for kind in ("text", "integer"):
        texts = [text for text in texts_of() if text]
        names = texts if kind == "text" else [v for v in typed(kind, texts, "").to_pylist() if v is not None]
        names = list(dict.fromkeys(names))
        frame = pd.DataFrame({"a": np.arange(len(names)) % 7, "c": ["abc"[i % 3] for i in range(len(names))]})
        model = FullyDynamicTreeClassifier()
        who = pd.Series(names, name="who")
        model.fit(frame, np.arange(len(names)) % 2, ids=pd.Series(names, name="id"), subjects=who)
        folder = tmp_path_factory.mktemp("state") / kind
        model.save(folder, with_examples=True)
        found[kind] = open_state(folder)[0]
    return found


def written_list(form: str, column: str, kind: str, text: str, folder: Path) -> Path:
    """A file with a column that has one spelling."""
    path = folder / f"list.{form}"
    if form == "csv":
        path.write_text(f"{column}\n{csv_cell(text)}\n", encoding="utf-8")
    elif form == "jsonl":
        path.write_text(json_lines([{column: text}], column, kind)[0] + "\n")
    else:
        values = pa.array([text]) if form == "parquet" else typed(kind, [text], "")
        pq.write_table(pa.table({column: values}), path)
    return path


@pytest.mark.turns(3)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "typed.parquet"])
@pytest.mark.parametrize("kind", ["text", "integer"])
def test_a_list_of_deletions_names_what_is_written(
    form: str, kind: str, states: dict[str, Any], tmp_path: Path
) -> None:
    saved = states[kind]
    live = saved.arrays["id"]
    for column in ("id", "who"):
        for text in texts_of():
            try:
                names = StateNames.of(saved)
                listed = open_deletions(str(written_list(form, column, kind, text, tmp_path)), names)
                gone = ListChanges(saved, names, listed, missing="skip")
                gone.read(lambda ids: np.where(np.isin(ids, live), 0, -1))
                found: Any = [*(gone.shown if column == "id" else gone.subjects), *gone.missing]
                found = found[0].item() if isinstance(found[0], np.generic) else found[0]
            except RaydtError as error:
                found = Refused(str(error))
            # what one text file of a single value shows of its type: text that a list of integers cannot have
            require(column, kind, text, found, f"a list of deletions in {form}")
            if kind == "text" and not isinstance(found, Refused):
                assert not gone.missing or not text, (column, text)


@pytest.mark.turns(3)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "typed.parquet"])
@pytest.mark.parametrize("kind", ["text", "integer"])
def test_a_list_of_a_purge_names_what_is_written(form: str, kind: str, states: dict[str, Any], tmp_path: Path) -> None:
    """All of these ids are live, so that the purge refuses each by its name."""
    for text in dict.fromkeys([*volume.spread(texts_of(), 20), LONG]):
        try:
            scope = read_ids(str(written_list(form, "id", kind, text, tmp_path)), [states[kind]])
            found: Any = next(iter(scope.names or ()), None)
        except RaydtError as error:
            found = Refused(str(error))
            if error.message is not None and error.message.id == "purges.live_id":
                shown = plain(error.message.parameters["id"])
                found = ast.literal_eval(shown.removesuffix("..."))
                if shown.endswith("..."):
                    assert found == text[: len(found)] != text, shown
                    found = text
        require("id", kind, text, found, f"a list of a purge in {form}")


@pytest.mark.turns(3)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("kind", ["text", "integer"])
@pytest.mark.parametrize("role", ["id", "subject"])
def test_files_of_changes_and_of_rows_name_what_is_written(
    role: str, kind: str, form: str, states: dict[str, Any], tmp_path: Path
) -> None:
    saved = states[kind]
    names = StateNames.of(saved)
    for text in volume.spread(texts_of(), 12):
        usual = "z" if kind == "text" else "5"
        rows = [
            {"op": "i", **{name: row[name] for name in ("a", "c", "y")}, "id": usual, "who": usual}
            for row in cells(role, [text], lambda text: 0)
        ]
        column = COLUMNS[role]
        rows[0][column] = text
        for what in ("changes", "rows"):
            path = tmp_path / f"{what}.{form}"
            if form == "csv":
                write_csv(path, rows)
            else:
                line = json_lines(rows, column, kind)[0]
                other = "who" if column == "id" else "id"
                path.write_text((line if kind == "text" else line.replace(f'"{other}": "5"', f'"{other}": 5')) + "\n")
            try:
                if what == "changes":
                    source = source_of(saved, names, {"op": "op"}, find_changes([str(path)], None, saved, names)[0])
                else:
                    source = open_insertions(str(path), None, saved, names)
                found = entered(source, role)[0]
            except RaydtError as error:
                found = Refused(str(error))
            require(role, kind, text, found, f"a file of {what} in {form}")


# ---------------------------------------------------------------------------------------- numbers that are missing

#: What pandas takes for a missing number, and what is none.
MISSING = sorted(STR_NA_VALUES | {" NULL", "NA ", " "})
NO_NUMBERS = ("Null", "none", "-", "?", "n.a.", "missing", "NULLS", "unknown")


def numbers_of(source: Any) -> tuple[list[Any], list[Any]]:
    """Return the numbers of column a of the rows of a source, None where missing, and the categories of column c."""
    numbers: list[Any] = []
    categories = []
    for rows in source.rows():
        a, c = (source.features.names.index(name) for name in "ac")
        for place, (number, code) in enumerate(zip(rows.X[:, a].tolist(), rows.X[:, c].tolist(), strict=True)):
            bad = Refused(rows.bad[place].message.id) if place in rows.bad else None
            numbers.append(bad or (None if np.isnan(number) else number))
            categories.append(bad or (None if code < 0 else source.categories()["c"].values[int(code)]))
    return numbers, categories


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if path.suffix == ".csv":
        write_csv(path, rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def state_of_numbers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    frame = pd.DataFrame({"a": np.arange(40) % 7, "c": ["abc"[i % 3] for i in range(40)]})
    model = FullyDynamicTreeClassifier().fit(frame, np.arange(40) % 2, ids=pd.Series(np.arange(40), name="id"))
    folder = tmp_path_factory.mktemp("numbers") / "state"
    model.save(folder, with_examples=True)
    return open_state(folder)[0]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("what", ["source", "changes", "rows"])
def test_what_stands_for_nothing_is_a_missing_number_and_in_text_itself(
    what: str, form: str, state_of_numbers: Any, tmp_path: Path
) -> None:
    reading, rng = replace(CLASSES, missing=True), random.Random(62)
    for given in (None, ["?", "-999", "NULL"]) if what == "source" else (None,):
        missing = MISSING if given is None else ["?", " ?", "-999", "-999.0", "NULL", ""]
        for mostly in (False, True):
            others = [word for word in (*NO_NUMBERS, "NA", "None") if word not in missing]
            texts = ["NULL"] * 200 * mostly + rng.sample(missing, len(missing))
            texts += [*(str(place / 4) for place in range(40)), *others, *missing]
            rows = []
            for place, text in enumerate(texts):
                value = float(text) if form == "jsonl" and number(text) is not None else text
                row = {"id": 1000 + place, "a": value, "c": text or "empty", "y": place % 2}
                rows.append(({"op": "i"} if what == "changes" else {}) | row)
            path = tmp_path / f"t.{form}"
            write_rows(path, rows)
            if what == "source":
                options = {"kind": form, "path": str(path), "id": "id", "categorical": ["c"]}
                options |= {} if given is None else {"null_values": given}
                source: Any = open_source(TypeAdapter[Any](SourceOptions).validate_python(options), reading=reading)
            elif what == "changes":
                saved, names = state_of_numbers, StateNames.of(state_of_numbers)
                source = source_of(saved, names, {"op": "op"}, find_changes([str(path)], None, saved, names)[0])
            else:
                source = open_insertions(str(path), None, state_of_numbers, StateNames.of(state_of_numbers))
            numbers, categories = numbers_of(source)
            for text, found, category in zip(texts, numbers, categories, strict=True):
                if text in missing:
                    assert found is None, (text, found)
                elif number(text) is not None:
                    assert found == float(text), (text, found)
                else:
                    assert isinstance(found, Refused), (text, found)
                if not isinstance(found, Refused):
                    assert category == (text or "empty"), (text, category)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_former_rules_know_no_words_for_a_missing_number(form: str, tmp_path: Path) -> None:
    write_rows(tmp_path / f"t.{form}", [{"a": a, "y": 0} for a in (1, 2, 3, 4, "NULL")])
    found = []
    for rules in (4, 5):
        options = {"kind": form, "path": str(tmp_path / f"t.{form}"), "rules": rules}
        source = open_source(
            TypeAdapter[Any](SourceOptions).validate_python(options), reading=replace(CLASSES, missing=True)
        )
        found.append([len(rows.bad) for rows in source.rows()])
    assert found == [[1], [0]]


def test_nan_in_json_is_a_missing_number(tmp_path: Path) -> None:
    """Python's own writer of JSON writes it."""
    write_rows(tmp_path / "t.jsonl", [{"a": a, "b": float("nan"), "y": 0} for a in (float("nan"), 2.5, 3.5)])
    options = TypeAdapter[Any](SourceOptions).validate_python({"kind": "jsonl", "path": str(tmp_path / "t.jsonl")})
    rows = next(iter(open_source(options, reading=replace(CLASSES, missing=True)).rows()))
    assert not rows.bad
    assert np.array_equal(np.isnan(rows.X[:, 0]), [True, False, False])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("role", ["id", "subject", "key", "label"])
def test_no_id_subject_key_or_label_is_missing_by_a_word(role: str, form: str, tmp_path: Path) -> None:
    """Among integers a word is a bad row; it never makes a row without an id."""
    texts = [*map(str, range(10)), "NULL", "<NA>", "nan"]
    write_rows(tmp_path / f"t.{form}", cells(role, texts, lambda t: int(t) if t.isdigit() and form == "jsonl" else t))
    found = from_source(role, form, "integer" if form == "csv" and role != "label" else None, tmp_path)
    assert all(isinstance(one, Refused) or one in texts for one in found[10:]), found


# ---------------------------------------------------------------------------------------- Python and the command line


class Names(SavedKeys):
    """Models of some keys, of which only the names are there."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self._known = set(keys)

    def __contains__(self, key: object) -> bool:
        return key in self._known


class HashOf:
    """A key that hashes a name to itself."""

    def hash(self, name: Any) -> str:
        return f"{type(name).__name__} {name}"


def test_the_command_line_names_what_is_written() -> None:
    texts = texts_of()
    whole = [v for v in typed("integer", texts, "").to_pylist() if v is not None]
    for keys, kind in ((Names(texts), "text"), (Names(whole), "integer")):
        for text in texts:
            found = keys.named(text)
            require("key", kind, text, Refused("unknown") if found is None else found, "--key")
    for text in texts:  # verify --id, --subject: text, and an integer that is written so
        for said in _hashes(HashOf(), text):  # type: ignore[arg-type]
            kind, _, name = said.partition(" ")
            assert name == text if kind == "str" else int(name) == number(text), (said, text)


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "array of objects": lambda values: np.array([*values, None], dtype=object)[:-1],
    "array": np.array,
    "series": pd.Series,
    "index": pd.Index,
    "arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([pa.array(values)]),
    "categories": lambda values: pd.Series(values).astype("category"),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    "take", [partial(keys_of, what="id", known={}), partial(checked_keys, types={})], ids=["ids", "keys"]
)
def test_ids_and_keys_of_python_are_what_they_are(container: str, take: partial[list[Any]]) -> None:
    texts = [text for text in texts_of() if text]
    whole = [v for v in typed("integer", texts, "").to_pylist() if v is not None]
    for kind, values in (("text", texts), ("integer", whole)):
        if take.func is checked_keys:
            values = [value for value in values if value != -(2**63)]
        for value, found in zip(values, take(CONTAINERS[container](values)), strict=True):
            require("key", kind, str(value), found, container)
            assert type(found) is type(value), (container, value, found)


def test_categories_are_the_same_in_a_frame_a_file_and_a_request(tmp_path: Path) -> None:
    """A model that has learnt categories as text or as numbers finds each again by what it is, or refuses it."""
    texts = [text for text in texts_of() if text]
    for kind in ("text", "integer"):
        values = texts if kind == "text" else [v for v in typed(kind, texts, "").to_pylist() if v and abs(v) < 2**53]
        frame = pd.DataFrame({"a": np.arange(len(values)) % 7, "c": values})
        model = FullyDynamicTreeClassifier(categorical_features=["c"])
        model.fit(frame, np.arange(len(values)) % 2)
        model.save(tmp_path / kind, with_examples=True)
        saved = open_state(tmp_path / kind)[0]
        known, reader = saved.categories["c"], RequestReader(saved)
        for text in volume.spread(texts, 60):
            row = json_lines([{"a": 1, "c": text}], "c", kind)[0]
            try:
                read = reader.read(parsed(row.encode()))
                code = int(read.X[0, 1])
                found = known[code] if 0 <= code < len(known) else Refused("unseen")
            except RaydtError as error:
                found = Refused(str(error))
            if not (isinstance(found, Refused) and kind == "integer"):
                require("category", kind, text, found, "serve")


CHANGED = ("ids", "subjects", "keys", "y", "c")


@pytest.mark.parametrize("keyed", [False, True])
def test_a_type_that_changes_between_two_calls_is_an_error_that_names_both(keyed: bool) -> None:
    """Text and integers are two values in Python, and a model has one kind of them; nothing is learned of the call."""
    kinds: tuple[Callable[[int], Any], ...] = (int, str)
    for changed in CHANGED if keyed else set(CHANGED) - {"keys"}:
        for then, now in (kinds, kinds[::-1]):
            model: Any = FullyDynamicTreeClassifier(categorical_features=["c"])
            model = KeyedClassifier(model) if keyed else model

            def call(places: range, kind: Callable[[int], Any], model: Any = model, changed: str = changed) -> None:
                given: dict[str, Any] = {"ids": places, "subjects": places, "y": [place % 2 for place in places]}
                given["c"] = [place % 3 for place in places]
                given |= {"keys": [place % 2 for place in places]} if keyed else {}
                given[changed] = [kind(value) for value in given[changed]]
                X = pd.DataFrame({"a": np.arange(len(places)), "c": given.pop("c")})
                model.partial_fit(X, given.pop("y"), **given)

            call(range(6), then)
            before = model.digest()
            with pytest.raises(RaydtError) as caught:
                call(range(6, 12), now)
            said = str(caught.value)
            for words in (("text", "string"), ("integer", "number")):
                assert any(word in said for word in words), (changed, said)
            assert model.digest() == before, (changed, then, now)
