"""A net of chains: lines, keys, runs and folders mixed at random; every command refuses, or tells the truth.

Each learner has two runs of two change logs, whose ids are hashed with the same key: nothing but what a chain names
tells them apart. Each run writes a chain of its own requests, and its states are updated with a chain of the user. The
oracle reads no chain: it knows the ids that the change log, or an update, has deleted, and what lives in each state.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipelines import replay, resume
from pipelines.saved_runs import find_state
from raydt.errors import ModelFileError, RaydtError
from raydt.exchange.messages import injected
from tests import volume
from tests.cases import Trial, a_third, change_log, every_case, first_cases, open_state
from tests.small_tables import table_of, written
from tests.storage_faults import Gone, at
from tests.unit.updatable import live_names, private_key, raydt_command

UPDATES, KEY, OTHER_KEY = 90, "0f" * 32, "1e" * 32
FORMER = Path(__file__).parents[1] / "former"


class Story(NamedTuple):
    """A run, its two updated states with their chain, and what is true of them."""

    run: Path
    states: tuple[Path, Path]  #: After one update, and after two.
    chain: Path  #: Of the two updates.
    gone: tuple[set[str], set[str]]  #: Ids deleted by the requests of the run, and by the updates.


def log_of(trial: Trial, seed: int) -> list[dict[str, Any]]:
    """A change log whose deletions all name an id."""
    return [row for row in change_log(UPDATES, trial.case.warmup, seed) if row["op"] != "delete_value"]


def deleted_in(log: list[dict[str, Any]]) -> set[str]:
    """Ids that a change log has deleted, and that it does not insert again."""
    there, gone = set[str](), set[str]()
    for row in log:
        if row["op"] == "insert":
            there.add(row["id"])
        elif row["op"] == "delete" and row["id"] in there:
            there.remove(row["id"])
            gone.add(row["id"])
    return gone - there


def config_of(trial: Trial, folder: Path, seed: int) -> dict[str, Any]:
    folder.mkdir()
    (folder / "key").write_text(KEY)
    output = {"receipts": True, "receipt_key": str(folder / "key"), "predictions": False, "metrics_every": 12}
    config = trial.config(folder, UPDATES, output=output)
    written(Path(config["source"]["path"]), table_of(log_of(trial, seed)))
    return config


def story(trial: Trial, folder: Path, seed: int, sign: list[Any]) -> Story:
    config, draw = config_of(trial, folder, seed), random.Random(seed)
    run, chain = Path(replay(config, folder / "run").path), folder / "chain.jsonl"
    chosen, states, last = sorted(draw.sample(sorted(live_names(run)), 4)), [], run
    for number in range(2):
        listed = folder / f"gone-{number}.csv"
        listed.write_text("\n".join(["id", *chosen[2 * number : 2 * number + 2], ""]))
        given = ["--receipts", chain, "--receipt-key", folder / "key", *sign, "--note", f"CASE-{number}"]
        raydt_command("update", last, "--delete", listed, "--out", folder / f"state-{number}", *given)
        last = folder / f"state-{number}"
        states.append(last)
    return Story(run, (states[0], states[1]), chain, (deleted_in(log_of(trial, seed)), set(chosen)))


# -- how a chain is changed ------------------------------------------------------------------------------------------

Lines = list[bytes]


def edited(lines: Lines, draw: random.Random) -> Lines:
    """One value of a line is another one; often of the last line."""
    at = draw.choice([len(lines) - 1, draw.randrange(len(lines))])
    entry = json.loads(lines[at])
    name = draw.choice(["time", "learner", "raydt_version", "note", "work", "copies", "digest_before", "options_hash"])
    other = {"work": [["a", "b"]], "copies": ["nowhere"], "learner": "gbdt" if entry["learner"] != "gbdt" else "forest"}
    digest = "sha256:" + 64 * "0"
    entry[name] = other.get(name, digest if name in ("digest_before", "options_hash") else "another")
    order = list(json.loads(lines[at]))
    if name not in order:  # where the format has it
        keys = list(entry)
        keys.remove(name)
        keys.insert(keys.index("key_check") + 1, name)
        entry = {key: entry[key] for key in keys}
    return [*lines[:at], json.dumps(entry, separators=(",", ":")).encode() + b"\n", *lines[at + 1 :]]


def swapped(lines: Lines, draw: random.Random) -> Lines:
    one, other = draw.sample(range(len(lines)), 2)
    mixed = list(lines)
    mixed[one], mixed[other] = lines[other], lines[one]
    return mixed


def dropped(lines: Lines, draw: random.Random) -> Lines:
    at = draw.randrange(len(lines))
    return [*lines[:at], *lines[at + 1 :]]


def repeated(lines: Lines, draw: random.Random) -> Lines:
    at = draw.randrange(len(lines))
    return [*lines[: at + 1], *lines[at:]]


def cut(lines: Lines, draw: random.Random) -> Lines:
    return [*lines[:-1], lines[-1][: draw.randrange(1, len(lines[-1]))]]


def forged(lines: Lines) -> Lines:
    """Return values with hashes that fit, as somebody writes them who knows the format."""
    sealed = pytest.importorskip("raydt.sessions.receipt").sealed
    hashed = pytest.importorskip("raydt.sessions.receipt_chain")._hash
    found: Lines = []
    for line in lines:
        entry = {**json.loads(line), "previous": hashed(found[-1]) if found else None}
        found.append(json.dumps(sealed(entry), separators=(",", ":")).encode() + b"\n")
    return found


KINDS: tuple[Callable[[Lines, random.Random], Lines], ...] = (edited, swapped, dropped, repeated, cut)


class Mixed(NamedTuple):
    """A chain in the place of another one, and how it came to be."""

    how: str
    content: bytes
    #: How many lines are as they were, if the rest has hashes that fit and is of the same model: only who knows a later
    #: line can tell. None: the lines themselves show it.
    kept: int | None = None

    def is_hidden_from(self, known: int) -> bool:
        """Return True if no hash shows the change to a state that knows the first ``known`` lines."""
        return self.kept is not None and self.kept >= known


def mixed(mine: Path, others: list[Path], draw: random.Random, *, forging: bool) -> Mixed:
    """Return the chain of another run, a line of it among those of ``mine``, or ``mine`` with a changed line."""
    lines = mine.read_bytes().splitlines(keepends=True)
    other = draw.choice(others)
    kind = draw.choice(["whole", "spliced", *KINDS, *KINDS])
    if kind == "whole":
        return Mixed(f"the chain {other.parent.name}/{other.name}", other.read_bytes())
    if kind == "spliced":
        more = draw.choice(other.read_bytes().splitlines(keepends=True))
        at = draw.randrange(len(lines) + 1)
        changed = [*lines[:at], more, *lines[at + draw.randrange(2) :]]
    else:
        assert callable(kind)
        changed = kind(lines, draw) if len(lines) > 1 or kind is not swapped else cut(lines, draw)
    how = kind if isinstance(kind, str) else kind.__name__
    if changed == lines[:-1]:
        return Mixed(how, b"".join(changed), len(changed))
    if not forging or kind is cut:
        return Mixed(how, b"".join(changed))
    written = forged(changed)
    pairs = enumerate(zip(lines, written, strict=False))
    kept = next((at for at, (one, two) in pairs if one != two), min(len(lines), len(written)))
    return Mixed(f"{how}, forged", b"".join(written), kept if is_of_one_model(written) else None)


def is_of_one_model(lines: Lines) -> bool:
    """Return True if lines name one learner and one model, and none of updates is missing, repeated or misplaced."""
    entries = [json.loads(line) for line in lines]
    updates = [one["source"]["updates"] for one in entries if "source" in one]
    follow = all(one[1] == two[0] for one, two in pairwise(updates))
    return follow and len({(one["learner"], json.dumps(one.get("origin"))) for one in entries}) == 1


# -- the net ----------------------------------------------------------------------------------------------------------


def attempt(*command: Any) -> tuple[int, Any] | None:
    """Return what a command says; None if it refuses in one error."""
    try:
        return raydt_command(*command)
    except RaydtError:
        return None


def require_truth(found: tuple[int, Any] | None, gone: set[str], there: set[str], told: str) -> None:
    """Require that what is said of ids is true in a state, and that the exit code says so."""
    if found is None:
        return
    code, said = found
    for one in said.get("ids", ()):
        assert one["deleted"] == (one["id"] in gone), f"{told}: {one}"
        assert one.get("live") in (None, one["id"] in there), f"{told}: {one}"
    assert (code == 0) == said["ok"], told


def require_no_append(chain: Path, told: str, *command: Any) -> None:
    """Require that a command that appends refuses a chain, and leaves it as it is."""
    before = chain.read_bytes()
    assert attempt(*command) is None, f"{told}: {' '.join(map(str, command[:2]))} has appended"
    assert chain.read_bytes() == before, told


@every_case("chains of receipts", among=a_third("chains of receipts"))
def test_every_command_refuses_a_mixed_chain_or_tells_the_truth(trial: Trial, tmp_path: Path) -> None:
    draw = random.Random(f"chains {trial.name}")
    pem = private_key(tmp_path / "sign.pem") if draw.random() < 0.5 else None
    sign = [] if pem is None else ["--sign", pem]
    mine, other = story(trial, tmp_path / "mine", 1, sign), story(trial, tmp_path / "other", 2, [])
    for one in (mine, other):
        require_true_stories(one)
    for round in range(volume.spread(range(60), 5)[-1] + 1 if volume.nightly else 6):
        told = f"{trial.name}, round {round}"
        forging = sign == [] and draw.random() < 0.4
        the_run_says(mine, other, draw, told, forging)
        the_update_says(mine, other, draw, told, forging, tmp_path / "scratch")


def asked_of(gone: set[str], there: set[str], draw: random.Random) -> list[str]:
    """Options that ask for some ids that are gone and some that are there."""
    names = draw.sample(sorted(gone), min(2, len(gone))) + draw.sample(sorted(there), 2)
    return [word for name in names for word in ("--id", name)]


def require_true_stories(one: Story) -> None:
    """Nothing is mixed: every command confirms it."""
    there, key = live_names(one.run), one.chain.with_name("key")
    ids = [word for name in sorted(one.gone[0]) for word in ("--id", name)]
    code, found = raydt_command("verify", one.run, *ids, "--receipt-key", key)
    assert (code, found["gaps"]) == (0, []), found
    require_truth((code, found), one.gone[0], there, "the truth")
    ids = [word for name in sorted(one.gone[1]) for word in ("--id", name)]
    code, found = raydt_command("verify", one.chain, one.states[1], *ids, "--receipt-key", key)
    assert (code, found["equal"]) == (0, True), found
    require_truth((code, found), one.gone[1], live_names(one.states[1]), "the truth")
    there = live_names(one.states[0])
    code, found = raydt_command("verify", one.chain, one.states[0], *ids, "--receipt-key", key)
    assert (code, found["older_than"], found["live"]) == (3, 2, 0), found
    require_truth((code, found), one.gone[1] - there, there, "an older state")
    assert not any(name["contradicts"] for name in found["ids"]), found


def the_run_says(mine: Story, other: Story, draw: random.Random, told: str, forging: bool) -> None:
    """Put another chain into the folder of a run, and ask the run."""
    file, key = mine.run / "receipts.jsonl", mine.chain.with_name("key")
    before = file.read_bytes()
    how = mixed(file, [other.run / file.name, other.chain, mine.chain], draw, forging=forging)
    if how.content == before:
        return
    told = f"{told}: {how.how} in the folder of the run"
    file.write_bytes(how.content)
    there = live_names(mine.run)
    try:
        given = asked_of(mine.gone[0], there, draw)
        found = attempt("verify", mine.run, *given, "--receipt-key", key)
        require_truth(found, mine.gone[0], there, told)
        if how.is_hidden_from(len(before.splitlines())):
            return
        assert found is None, f"{told}: {found}"
        assert attempt("verify", mine.run, "--receipt", 1) is None, told
        if how.content == mine.chain.read_bytes():  # which is not that of the run, but of the state
            return
        listed = mine.run.parent / "gone-0.csv"
        chain = ["--receipts", file, "--receipt-key", key]
        require_no_append(file, told, "update", mine.states[1], "--delete", listed, "--missing", "skip", *chain,
                          "--out", mine.run.parent / "none")  # fmt: skip
        assert not (mine.run.parent / "none").exists(), told
    finally:
        file.write_bytes(before)


def the_update_says(mine: Story, other: Story, draw: random.Random, told: str, forging: bool, scratch: Path) -> None:
    """Give another chain to each command that reads or extends one beside a state."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    chain, key, state = scratch / "chain.jsonl", mine.chain.with_name("key"), mine.states[1]
    how = mixed(mine.chain, [other.chain, other.run / "receipts.jsonl", FORMER / "receipts-2.jsonl"], draw,
                forging=forging)  # fmt: skip
    if how.content == mine.chain.read_bytes():
        return
    told = f"{told}: {how.how} for the chain of the updates"
    chain.write_bytes(how.content)
    there = live_names(state)
    given = asked_of(mine.gone[1], there, draw)
    found = attempt("verify", chain, state, *given, "--receipt-key", key)
    require_truth(found, mine.gone[1], there, told)
    assert found is None or how.is_hidden_from(2), f"{told}: {found}"
    assert attempt("verify", chain, state, *given, "--receipt-key", wrong_key(scratch)) is None, told
    if "forged" not in how.how and not how.how.startswith("the chain") and how.how != "dropped":
        for command in (
            ["verify", chain],
            ["report", chain, "--out", scratch / "pages"],
            ["verify", chain, "--receipt", 1],
        ):
            assert attempt(*command) is None, f"{told}: {command[0]}"
    listed, options = mine.run.parent / "gone-0.csv", ["--receipts", chain, "--receipt-key", key]
    delete = ["update", state, "--delete", listed, "--missing", "skip", *options]
    if not how.is_hidden_from(2):
        require_no_append(chain, told, *delete, "--out", scratch / "state")
        require_no_append(chain, told, *delete, "--dry-run")
        require_no_append(chain, told, "purge", state, *options)
    if not how.is_hidden_from(1) or how.how == "dropped":  # then the state is that of now
        require_no_append(chain, told, "update", mine.states[0], "--roll-back", *options)
    assert not (scratch / "state").exists(), told


def wrong_key(folder: Path) -> Path:
    (folder / "wrong").write_text(OTHER_KEY)
    return folder / "wrong"


@every_case("chains of runs that are cut", among=a_third("chains of runs that are cut"))
def test_a_run_goes_on_in_its_own_chain_only(trial: Trial, tmp_path: Path) -> None:
    """A run is cut behind a receipt; it refuses to go on in a chain that is mixed, and goes on in its own."""
    draw = random.Random(f"cut chains {trial.name}")
    config, other = config_of(trial, tmp_path / "mine", 1), config_of(trial, tmp_path / "other", 2)
    whole = Path(replay(config, tmp_path / "whole").path) / "receipts.jsonl"
    foreign = Path(replay(other, tmp_path / "foreign").path) / "receipts.jsonl"
    run = tmp_path / "run"
    receipts = len(whole.read_bytes().splitlines())
    with injected(at(receipts - 1, point="requests.appended")), pytest.raises(Gone):
        replay(config, run)
    chain, copy = run / "receipts.jsonl", tmp_path / "copy"
    before = chain.read_bytes()
    shutil.copytree(run, copy)
    for round in range(60 if volume.nightly else 6):
        how, known = mixed(chain, [foreign], draw, forging=draw.random() < 0.4), lines_known_in(run)
        told = f"{trial.name}, round {round}: {how.how}, the run knows {known} lines"
        if how.content == before:
            continue
        chain.write_bytes(how.content)
        if how.how == "cut":  # by a kill, and mended
            how = how._replace(kept=before.count(b"\n") - 1)
        if how.is_hidden_from(known) and said_by(how.content) == said_by(before)[: len(said_by(how.content))]:
            resume(run)  # and comes to the same again
            assert said_by(chain.read_bytes()) == said_by(whole.read_bytes()), told
            shutil.rmtree(run)
            shutil.copytree(copy, run)
            continue
        assert refuses_to_go_on(run), told
        assert chain.read_bytes() == how.content, told
        chain.write_bytes(before)
    resume(run)
    assert said_by(chain.read_bytes()) == said_by(whole.read_bytes())


def refuses_to_go_on(run: Path) -> bool:
    """Return True if a run cannot be resumed, and says so in one error."""
    try:
        resume(run)
    except RaydtError:
        return True
    return False


def said_by(chain: bytes) -> list[dict[str, Any]]:
    """Return what the whole lines of a chain say that a run comes to again."""
    others = ("previous", "time", "raydt_version", "options_hash", "copies", "key_check", "origin", "sha256")
    entries = [json.loads(line) for line in chain.splitlines(keepends=True) if line.endswith(b"\n")]
    return [{name: value for name, value in entry.items() if name not in others} for entry in entries]


def lines_known_in(run: Path) -> int:
    """Return how many lines of the chain of a run its newest checkpoint knows."""
    try:
        head = open_state(find_state(run / "checkpoints").folder)[0].components["recorder"]["requests"]["head"]
    except ModelFileError:  # without a checkpoint
        return 0
    lines = (run / "receipts.jsonl").read_bytes().splitlines(keepends=True)
    hashes = ["sha256:" + hashlib.sha256(line).hexdigest() for line in lines]
    return hashes.index(head) + 1 if head is not None else 0


@pytest.mark.parametrize("trial", first_cases()[:1], ids=lambda trial: trial.name)
def test_no_command_appends_the_first_receipt_of_a_model_to_the_chain_of_another(trial: Trial, tmp_path: Path) -> None:
    """Nothing but the model that a chain names tells: no line of it has led to the state."""
    given, chain, runs = ["--receipts", tmp_path / "chain", "--receipt-key", tmp_path / "key"], tmp_path / "chain", []
    for seed in (1, 2):
        config = config_of(trial, tmp_path / str(seed), seed)
        config["output"] |= {"receipts": False, "receipt_key": None}
        runs.append(Path(replay(config, tmp_path / f"run-{seed}").path))
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "gone.csv").write_text(f"id\n{min(live_names(runs[0]))}\n")
    delete = ["--delete", tmp_path / "gone.csv", "--missing", "skip", "--out", tmp_path / "state"]
    raydt_command("update", runs[0], *delete, *given)
    assert attempt("verify", chain, runs[0], "--receipt-key", tmp_path / "key")
    assert attempt("verify", chain, runs[1], "--receipt-key", tmp_path / "key") is None
    for command in (["update", runs[1], *delete[:-1], tmp_path / "none"], ["purge", runs[1]]):
        require_no_append(chain, trial.name, *command, *given)
