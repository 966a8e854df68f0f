"""Receipts on file: one JSON object a line, each with the hash of the line before it.

Invariant: no entry can be changed, removed from the middle or put in another place without a hash that no longer fits.
Who removes the last entries, or writes the last ones anew with their hashes, leaves a chain that fits: sign, or compare
with the hashes that states and runs have (:meth:`Chain.require`). No id is written: it appears as a hash with a key
that stays with the user, so that whoever has the file alone cannot test whether an id is in it.

Format: ``docs/reference/formats.md``.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain as joined
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from raydt.errors import STORAGE_REMEDIES, ConfigError, InputError
from raydt.folders.folder import NO_LOCKS
from raydt.installation import __version__
from raydt.messages import message
from raydt.sessions.receipt import BEGIN, FORMAT, Receipt, checked_note, decoded, encoded, sealed, validated

# The course of a chain of receipts: which entries made the model what it is, with gaps, rollbacks and older states.
#
# Invariant: an entry has an effect on the model of now if it is on the *path*: the entries before it, back to the
# first, without those that a rollback has undone. With entries 1, 2 and 3, where 3 goes back to the state after 1, the
# path is 1, 3, and the deletions of 2 are undone.


class Course:
    """Follows the entries of one chain; O(1) for each."""

    def __init__(self) -> None:
        #: The entry whose ``digest_after`` is that of the model now: the last that is not the purge of an older state.
        self.newest: Mapping[str, Any] = {}
        self.gaps: list[int] = []  #: Entries (from 1 on) before which the model was changed without an entry.
        self._taken = self._tip = 0  # entries so far, and the last one on the path
        self._before = [0]  # of each entry (from 1 on) the one before it on the path, 0 of the first
        #: Of each digest the last entry on the path to it (0: none), its live examples, and whose model it was.
        self._states: dict[str, tuple[int, int, tuple[str, str]]] = {}

    def take(self, entry: Mapping[str, Any]) -> bool:
        """Take the next entry; return False if it is a rollback to a state that is not the one it names."""
        before, after, back = entry["digest_before"], entry["digest_after"], entry.get("rolled_back")
        known = entry.get("former", before)  # by which the entries before have the model
        follows = not self.newest or self.newest["digest_after"] == known
        model = entry["learner"], entry["options_hash"]
        if back is not None and self._states.get(after) != (back, entry["active"], model):
            return False
        self._taken += 1
        self._before.append(self._tip if back is None else back)
        if follows or "purged" not in entry or known not in self._states:
            self.gaps += [] if follows else [self._taken]
            self._states.setdefault(before, self._states.setdefault(known, (self._tip, entry["active_before"], model)))
            self.newest, self._tip = entry, self._taken
            if back is None:
                self._states[after] = self._taken, entry["active"], model
        return True

    def rollback_to(self, digest: str, options_hash: str, learner: str) -> dict[str, Any] | None:
        """Return the values of the entry of a rollback; None if no entry has the state, or it is that of now."""
        if not self.newest or self.newest["digest_after"] == digest or digest not in self._states:
            return None
        number, active, model = self._states[digest]
        if model != (learner, options_hash):
            return None
        return {
            "learner": learner,
            "options_hash": options_hash,
            "digest_before": self.newest["digest_after"],
            "digest_after": digest,
            "active_before": self.newest["active"],
            "active": active,
            "deleted": [],
            "inserted": [],
            "rolled_back": number,
        }

    def path(self, number: int | None = None) -> list[int]:
        """Return the entries (from 1 on) that made the model what it was after an entry, by default the last. O(n)."""
        at, found = self._tip if number is None else number, list[int]()
        while at:
            found.append(at)
            at = self._before[at]
        return found[::-1]


#: What tells the hashes of ids, and the check value of a key, from others under the same key.
_PERSON, _CHECK = b"raydt-receipt-id", b"raydt-key-check"
#: Digits of a key file, and the least number of bytes of a key.
_KEY_BYTES = 32


class Key:
    """The secret by which ids are hashed: at least 32 random bytes."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _KEY_BYTES:
            raise ConfigError(message("receipts.short_key", wanted=_KEY_BYTES, found=len(secret)))
        self._secret = secret[:64]
        self._begun = hashlib.blake2b(digest_size=32, key=self._secret, person=_PERSON)

    @classmethod
    def read(cls, path: str | Path) -> Key:
        """Read a key file of hexadecimal digits; ConfigError says how to make one."""
        try:
            return cls(bytes.fromhex(Path(path).read_text(encoding="utf-8").strip()))
        except OSError as error:
            raise ConfigError(message("receipts.unread_key", file=str(path), reason=_reason(error))) from error
        except ValueError as error:
            raise ConfigError(message("receipts.bad_key", file=str(path))) from error

    def hash(self, number: Any) -> str:
        """Keyed BLAKE2b of an id, 64 hexadecimal digits; an integer and the same digits as text differ."""
        if type(number) is int or isinstance(number, Integral):  # the first is the most common, and ten times as fast
            text = b"integer:%d" % int(number)
        else:
            text = (f"text:{number}" if isinstance(number, str) else f"value:{number!r}").encode()
        hashing = self._begun.copy()
        hashing.update(text)
        return hashing.hexdigest()

    @property
    def check(self) -> str:
        """Value by which an entry tells that its ids are hashed with this key, 64 hexadecimal digits."""
        return hashlib.blake2b(digest_size=32, key=self._secret, person=_CHECK).hexdigest()

    def hashes(self, ids: Iterable[Any]) -> list[str]:
        """Of some ids, in ascending order: the order of a call is not told."""
        return sorted(map(self.hash, ids))


class Signer:
    """An Ed25519 key that signs entries; needs the package ``cryptography``.

    The file has the private key as PEM (``openssl genpkey -algorithm ed25519``), without a password; ConfigError if it
    is no such key, or the package is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        from_pem, _, Private = _cryptography()
        try:
            key = from_pem(Path(path).read_bytes(), password=None)
        except OSError as error:
            raise ConfigError(message("receipts.private_key", file=str(path), reason=_reason(error))) from error
        except (TypeError, ValueError) as error:  # the library says more than anybody understands
            raise ConfigError(message("receipts.no_ed25519", file=str(path))) from error
        if not isinstance(key, Private):
            raise ConfigError(message("receipts.no_ed25519", file=str(path)))
        self._key: Any = key

    @property
    def public_key(self) -> str:
        """The public key, 64 hexadecimal digits."""
        return str(self._key.public_key().public_bytes_raw().hex())

    def sign(self, content: bytes) -> str:
        """Signature, 128 hexadecimal digits."""
        return str(self._key.sign(content).hex())


def _cryptography() -> tuple[Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(message("receipts.no_cryptography")) from error
    return load_pem_private_key, ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey


class Origin(NamedTuple):
    """The model of a run or state, by what a chain names (``origin``) and what the state knows of its chain."""

    place: str  #: Where the run or state is.
    learner: str
    run: str | None  #: The run that trained it; None if no run did, or an early one.
    data: str | None  #: Fingerprint of its source.
    digest: str  #: Of the model before the first update in its lineage.
    live: Mapping[str, Any]  #: What the live source of the run says of itself; empty without.
    heads: tuple[str, ...] = ()  #: Hashes of lines, of which the chain must have one.
    #: Gives the digest of the model as it is in the format before the present one, if its learner has had another.
    former: Callable[[], str | None] = lambda: None

    @property
    def named(self) -> dict[str, Any]:
        """Values of ``origin`` in a receipt."""
        return {"run": self.run, "data": self.data, "digest": self.digest}


@dataclass(frozen=True)
class Chain:
    """A chain that was read and found whole."""

    entries: list[dict[str, Any]]
    #: The entry whose ``digest_after`` is that of the model now: the last one that is not the purge of an older state.
    newest: Mapping[str, Any]
    head: str  #: Hash of the last line.
    #: Entries (from 1 on) before which the model was changed without a receipt in this chain. A purge of an older
    #: state, whose digest an earlier entry has, makes none, nor does a rollback.
    gaps: list[int]
    hashes: list[str]  #: SHA-256 of each line; ``head`` is the last.
    course: Course  #: Which entries the model of now has, and which were rolled back.
    #: Public keys that have signed; with none, or if not every entry is signed, ``all_signed`` is False.
    signers: list[str]
    all_signed: bool
    keyed: bool  #: Whether every entry tells by which key its ids are hashed. Those of an earlier version do not.
    path: str = ""

    @property
    def origin(self) -> Mapping[str, Any] | None:
        """Return what the chain says it is about; None of a chain that does not say it."""
        return next((entry["origin"] for entry in self.entries if "origin" in entry), None)

    def require(self, origin: Origin) -> None:
        """Refuse (InputError) a chain that is not about the model of a run or state, by all that the chain names.

        A chain of an early version names the learner and the live source only.
        """
        named, place = self.origin, origin.place
        if (learner := self.entries[0]["learner"]) != origin.learner:
            said = message("receipts.other_learner", theirs=learner, ours=origin.learner, place=place)
            raise InputError(said, file=self.path)
        for of in (entry["source"]["of"] for entry in self.entries if "source" in entry):
            if any(of[name] != origin.live[name] for name in of.keys() & origin.live.keys()):
                said = message("receipts.other_table", theirs=_table(of), ours=_table(origin.live))
                raise InputError(said, file=self.path)
        if named is not None and not self._is_of(named, origin):
            theirs, ours = of_origin(named), of_origin(origin.named)
            raise InputError(message("receipts.foreign", theirs=theirs, ours=ours, place=place), file=self.path)
        if origin.heads and not set(origin.heads).intersection(self.hashes):
            raise InputError(message("receipts.lacking", head=origin.heads[0], place=place), file=self.path)

    def _is_of(self, named: Mapping[str, Any], origin: Origin) -> bool:
        if named["run"] is not None and origin.run is not None:
            return bool(named["run"] == origin.run)
        if named["data"] is not None and origin.data is not None:
            return bool(named["data"] == origin.data)
        known = joined.from_iterable((entry["digest_before"], entry["digest_after"]) for entry in self.entries)
        return origin.digest in (named["digest"], *known)


def of_origin(named: Mapping[str, Any]) -> str:
    """Return in words which model a chain is about."""
    if named["run"] is not None:
        return message("receipts.of_run", run=named["run"])
    return message("receipts.of_no_run", digest=named["digest"])


def _table(of: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in of.items())


class OpenChain:
    """A chain that this process alone appends to; made by :func:`opened`.

    Memory does not grow with the entries: what older ones say is read again where a receipt does not follow the newest.
    """

    def __init__(self, path: str, file: int, key: Key, signer: Signer | None) -> None:
        self.key, self.path, self._file, self._signer = key, path, file, signer
        self._size = os.fstat(file).st_size
        self._former: Callable[[], str | None] = lambda: None
        chain = read_chain(path, key) if self._size else None
        self._head = None if chain is None else chain.head
        #: As of the chain; None after the purge of an older state, until it is needed.
        self._newest: Mapping[str, Any] | None = {} if chain is None else chain.newest
        #: What the entries say they are about.
        self.named: Mapping[str, Any] | None = None if chain is None else chain.origin

    @property
    def head(self) -> str | None:
        """Return the hash of the last line; None of an empty chain."""
        return self._head

    def about(self, origin: Origin) -> None:
        """Say which model the next entries are about, and which the first begins with.

        InputError as of :meth:`Chain.require`.
        """
        self._former = origin.former
        if self._head is not None:
            read_chain(self.path, self.key).require(origin)
        self.named = self.named or origin.named

    def _rollback_to(self, digest: str, options_hash: str, learner: str) -> dict[str, Any] | None:
        """Return the values of the entry of a rollback, if it is one (:meth:`Course.rollback_to`)."""
        if self._newest is None:
            self._newest = read_chain(self.path, self.key).newest
        if self._newest.get("digest_after", digest) == digest:
            return None
        return read_chain(self.path, self.key).course.rollback_to(digest, options_hash, learner)

    def append(self, receipt: Receipt, *, time: str) -> dict[str, Any]:
        """Append the entry of a receipt, after that of a rollback to an older state if it is about one."""
        if receipt.digest_before is None or receipt.digest_after is None:
            raise ConfigError(message("receipts.no_digests"))
        values: dict[str, Any] = {
            "learner": receipt.learner,
            "options_hash": receipt.options_hash,
            **self._of_key(receipt),
            **({"note": checked_note(receipt.note)} if receipt.note else {}),
            "work": [list(line) for line in receipt.words.lines],
            "copies": list(receipt.copies),
        }
        if receipt.by_key:
            parts = [{"key": self.key.hash(key), **self._of_key(one)} for key, one in receipt.by_key.items()]
            values["keys"] = sorted(parts, key=lambda part: str(part["key"]))
        if receipt.missing:
            values["missing"] = self.key.hashes(receipt.missing)
        values, back = self._known(values, rolls_back=True)
        return self._write(([] if back is None else [back]) + [values], time)[-1]

    def _known(self, values: dict[str, Any], *, rolls_back: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the values of an entry, and those of a rollback before it if it is about an older state.

        A model that the chain has by a digest of the former format is named by that one, too. The chain is read only
        for these two.
        """
        before, model = values["digest_before"], (values["options_hash"], values["learner"])
        back = self._rollback_to(before, *model) if rolls_back else None
        if back is None and (self._newest is None or self._newest.get("digest_after", before) != before):
            former, self._former = self._former(), lambda: None
            if former is not None:
                back = self._rollback_to(former, *model)
                if back is not None or (self._newest or {}).get("digest_after") == former:
                    values = {**values, "former": former}
        return values, back

    def _of_key(self, receipt: Receipt) -> dict[str, Any]:
        """Return what an entry says of a model, and of each one of the models by key."""
        return {
            "digest_before": receipt.digest_before,
            "digest_after": receipt.digest_after,
            "active_before": receipt.active_before,
            "active": receipt.active,
            "deleted": self.key.hashes(receipt.ids.tolist()),
            "inserted": self.key.hashes(receipt.inserted.tolist()),
            **({"subjects": self.key.hashes(receipt.subjects)} if receipt.subjects else {}),
        }

    def append_values(self, values: Mapping[str, Any], *, time: str) -> dict[str, Any]:
        """Append an entry with these ``values``, from ``learner`` on; else as :meth:`append`."""
        return self._write([self._known(dict(values), rolls_back=False)[0]], time)[0]

    def append_rollback(
        self, digest: str, options_hash: str, learner: str, *, time: str, note: str = ""
    ) -> dict[str, Any]:
        """Append a rollback to the state of an earlier entry; ConfigError without one, or if it is that of now."""
        back = self._rollback_to(digest, options_hash, learner)
        if back is None:
            now = (self._newest or {}).get("digest_after") == digest
            raise ConfigError(message("receipts.newest_state" if now else "receipts.unknown_state", file=self.path))
        return self._write([{**back, **({"note": checked_note(note)} if note else {})}], time)[0]

    def _write(self, entries: Sequence[Mapping[str, Any]], time: str) -> list[dict[str, Any]]:
        """Append entries with these values, all of them or none."""
        written, head, lines = [], self._head, b""
        for values in entries:
            entry = {"format": FORMAT, "previous": head, "time": time, "raydt_version": __version__, **values}
            named = {} if self.named is None else {"origin": self.named}
            entry = validated({**entry, "key_check": self.key.check, **named})
            if self._signer is not None:
                entry["public_key"] = self._signer.public_key
                entry["signature"] = self._signer.sign(encoded(entry))
            entry = sealed(entry)
            line = encoded(entry) + b"\n"
            head, lines = _hash(line), lines + line
            written.append(entry)
        self._size = os.fstat(self._file).st_size
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            self.withdraw()
            raise _unusable(self.path, error) from error
        except BaseException:
            self.withdraw()
            raise
        self._head = head
        for entry in written:
            newest = self._newest
            before = entry.get("former", entry["digest_before"])
            follows = newest is not None and newest.get("digest_after", before) == before
            self._newest = entry if follows else None
        return written

    def withdraw(self) -> None:
        """Remove what the last call appended, as far as that is possible: it has no effect after all."""
        with suppress(OSError):
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)


@contextmanager
def opened(path: str | Path, key: Key, signer: Signer | None = None, *, mend: bool = False) -> Iterator[OpenChain]:
    """Open a chain to append to it; what cannot be appended to shows here, and an empty new file is removed.

    With ``mend``, a last line that was cut short is removed, and an empty file counts as new: its writer was killed,
    and nobody was given either.
    """
    place, made = str(path), False
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK  # a pipe would wait for its reader
    try:
        try:
            file = os.open(place, flags)
        except FileNotFoundError:
            file, made = os.open(place, flags | os.O_CREAT, 0o666), True
    except OSError as error:
        raise _unusable(place, error) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise InputError(message("receipts.no_file"), file=place)
        _lock(file, place)
        if mend:
            whole = Path(place).read_bytes().rpartition(b"\n")
            os.ftruncate(file, len(whole[0]) + len(whole[1]))
            made = made or not whole[1]
        try:
            yield OpenChain(place, file, key, signer)
        finally:
            with suppress(OSError):
                if made and not os.fstat(file).st_size:
                    os.unlink(place)  # while it is locked: else it is the file of another process
    finally:
        os.close(file)


def _lock(file: int, place: str) -> None:
    """Be the only process that appends, as long as the file is open."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        same = os.path.samestat(os.fstat(file), os.stat(place))
    except (BlockingIOError, FileNotFoundError):
        same = False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise _unusable(place, error) from error
        same = True
    if not same:
        raise ConfigError(message("receipts.other_writer", file=place))


def _unusable(place: str, error: OSError) -> InputError:
    if error.errno == errno.ENOENT:
        return InputError(message("receipts.no_folder", reason=_reason(error)), file=place)
    remedy = STORAGE_REMEDIES.get(error.errno or 0)
    return InputError(message("machine.not_written", reason=_reason(error)), file=place, remedy=remedy)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def append(path: str | Path, receipt: Receipt, key: Key, *, time: str, signer: Signer | None = None) -> dict[str, Any]:
    """Append one receipt, with its note, as :func:`opened` and :meth:`OpenChain.append` do."""
    with opened(path, key, signer) as chain:
        return chain.append(receipt, time=time)


def read_chain(path: str | Path, key: Key | None = None) -> Chain:
    """Read a chain and check entries, hashes and signatures; InputError names the line, ConfigError the key."""
    try:
        lines = Path(path).read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(message("machine.not_read", reason=_reason(error)), file=str(path)) from error
    if not lines:
        raise InputError(message("receipts.empty"), file=str(path))
    entries: list[dict[str, Any]] = []
    course, hashes, signers, signed = Course(), list[str](), dict[str, None](), 0
    for row, line in enumerate(lines):
        try:
            entry = decoded(line)
        except ValueError as error:
            if not row and not line.startswith(BEGIN):
                raise InputError(message("receipts.no_chain", reason=str(error)), file=str(path), row=row) from error
            raise InputError(message("receipts.not_receipt", reason=str(error)), file=str(path), row=row) from error
        if entry["previous"] != (hashes[-1] if hashes else None):
            raise InputError(message("receipts.broken_chain"), file=str(path), row=row)
        if key is not None and entry.get("key_check", key.check) != key.check:
            raise ConfigError(message("receipts.other_key", file=str(path), row=row))
        if not course.take(entry):
            raise InputError(message("receipts.bad_rollback"), file=str(path), row=row)
        _require_same_model(entry, entries, str(path))
        if "signature" in entry:
            _verify(entry, row, str(path))
            signers[entry["public_key"]] = None
            signed += 1
        hashes.append(_hash(line))
        entries.append(entry)
    keyed, whole = all("key_check" in entry for entry in entries), signed == len(entries)
    newest, gaps, who = course.newest, course.gaps, list(signers)
    return Chain(entries, newest, hashes[-1], gaps, hashes, course, who, whole, keyed, str(path))


def _require_same_model(entry: Mapping[str, Any], before: Sequence[Mapping[str, Any]], file: str) -> None:
    """Refuse (InputError) an entry of another model than the one before it, or of updates that do not follow.

    Lines of an early version name no model; the one after them may.
    """
    if not before:
        return
    last, row = before[-1], len(before)
    named, learner = last.get("origin"), last["learner"]
    if entry["learner"] != learner:
        raise InputError(message("receipts.mixed", theirs=entry["learner"], ours=learner), file=file, row=row)
    if named is not None and entry.get("origin") != named:
        theirs = of_origin(entry["origin"]) if "origin" in entry else message("receipts.of_none")
        raise InputError(message("receipts.mixed", theirs=theirs, ours=of_origin(named)), file=file, row=row)
    if "source" in entry:
        stop = next((one["source"]["updates"][1] for one in reversed(before) if "source" in one), None)
        first = entry["source"]["updates"][0]
        if stop is not None and first != stop:
            raise InputError(message("receipts.other_place", first=first, stop=stop), file=file, row=row)


def _hash(line: bytes) -> str:
    return "sha256:" + hashlib.sha256(line).hexdigest()


def _verify(entry: dict[str, Any], row: int, file: str) -> None:
    """Require that the signature of an entry is that of its public key."""
    _, Public, _ = _cryptography()
    content = encoded({name: value for name, value in entry.items() if name not in ("signature", "sha256")})
    try:
        Public.from_public_bytes(bytes.fromhex(entry["public_key"])).verify(bytes.fromhex(entry["signature"]), content)
    except Exception as error:  # InvalidSignature is no subclass of anything of ours
        raise InputError(message("receipts.bad_signature"), file=file, row=row) from error


# What a chain of receipts says about one example or subject: when it was deleted, inserted or purged, what holds now.
#
# Invariant: an example is *deleted* if the last entry on the chain's path that names it has deleted it. What a rollback
# has undone is in the history, but decides nothing.

#: Keys of an entry that name examples by hashes, and what each says of them, in the order in which it happened.
IDS = (("missing", "missing"), ("deleted", "deleted"), ("inserted", "inserted"))

#: Keys that name subjects. An entry does not say whose the rows are that it inserts.
SUBJECTS = (("missing", "missing"), ("subjects", "deleted"))

#: What says nothing about whether an example is there: it was not when it was to be deleted, or copies were erased.
_PASSING = ("missing", "purged")


class Event(NamedTuple):
    """One entry that names an example."""

    receipt: int  #: Number of the entry, from 1 on.
    time: str
    note: str
    #: ``deleted``, ``inserted``, ``replaced`` (both), ``missing`` (to be deleted, but not there), or ``purged``: copies
    #: were erased.
    what: str
    counts: bool  #: Whether it decides if the example is deleted, and no rollback has undone it.
    undone_by: int | None  #: The rollback that has undone it.
    #: Of a request that came through the source of a run: where it was, the update that it was, and whether that waits
    #: for the learner's next batch.
    place: str | None = None
    update: int | None = None
    waits: bool = False


def events_of(chain: Chain, hashes: Collection[str], named: Sequence[tuple[str, str]] = IDS) -> list[Event]:
    """Return the entries that name an example (or of ``named`` a subject) by any of its ``hashes``, in order."""
    undone, wanted, events = undone_by(chain), set(hashes), list[Event]()
    for number, entry in enumerate(chain.entries, start=1):
        found = [what for key, what in named if not wanted.isdisjoint(entry.get(key, ()))]
        if named is IDS and "purged" in entry and not wanted.isdisjoint(entry["purged"]["ids"] or ()):
            found = ["purged"]
        if found:
            what = "replaced" if found[-2:] == ["deleted", "inserted"] else found[-1]
            by = undone.get(number)
            counts = by is None and what not in _PASSING
            request = _request(chain, entry, wanted) if "source" in entry else ()
            events.append(Event(number, entry["time"], entry.get("note", ""), what, counts, by, *request))
    return events


def _request(chain: Chain, entry: Mapping[str, Any], hashes: Collection[str]) -> tuple[str, int | None, bool]:
    """Return place and update of a request, None if it had no example, and whether its deletion still waits."""
    source = entry["source"]
    at = max((at for hash, at in zip(entry["deleted"], source["at"], strict=True) if hash in hashes), default=None)
    newest = next(one["source"] for one in reversed(chain.entries) if "source" in one)
    return source["place"], at, at is not None and at >= newest.get("waiting", at + 1)


def is_deleted(events: list[Event]) -> Event | None:
    """Return the event that has deleted an example, None if the chain does not say that it is deleted."""
    last = next((event for event in reversed(events) if event.counts), None)
    return last if last is not None and last.what == "deleted" else None


def undone_by(chain: Chain) -> dict[int, int]:
    """Return the rollback (from 1 on) that has undone each entry that is not on the path of now."""
    undone: dict[int, int] = {}
    on_path = set(chain.course.path())
    for number, entry in enumerate(chain.entries, start=1):
        if "rolled_back" in entry:
            kept = set(chain.course.path(number))
            undone |= {n: number for n in range(1, number) if n not in kept and n not in undone and n not in on_path}
    return {n: number for n, number in undone.items() if "purged" not in chain.entries[n - 1]}


def in_effect(chain: Chain) -> list[dict[str, Any]]:
    """Return the entries that made the model what it is now, in order."""
    return [chain.entries[number - 1] for number in chain.course.path()]


def about(entries: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return what entries of models by key say of the one with this hash, in order.

    A request of a source names no key: its id is that of one row, whatever the key.
    """
    found: list[Mapping[str, Any]] = []
    for entry in entries:
        found += [entry] if "source" in entry else [part for part in entry.get("keys", ()) if part["key"] == key]
    return found


def gone(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the hashes of all ids that entries say are deleted now. O(hashes in them)."""
    found: set[str] = set()
    for entry in entries:
        found.update(entry["deleted"])
        found.difference_update(entry["inserted"])
    return found


def erased_elsewhere(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the hashes of ids that were deleted, but not by a request of a source, and that none has named since."""
    found: set[str] = set()
    for entry in entries:
        found.difference_update(entry["inserted"])
        if "source" in entry:
            found.difference_update(entry["deleted"], entry.get("missing", ()))
        else:
            found.update(entry["deleted"])
    return found


def inserted_since_deletion(entries: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the hashes of the ids that later entries have inserted, by the hash of each deleted subject."""
    inserted: dict[str, set[str]] = {}
    for entry in entries:
        inserted |= {subject: set() for subject in entry.get("subjects", ())}
        for ids in inserted.values():
            ids.update(entry["inserted"])
    return inserted
