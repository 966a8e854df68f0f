"""Receipts on file: one JSON object a line, each with the hash of the line before it.

Invariant: no entry can be changed, removed from the middle or put in another place without a hash that no longer fits.
Who removes the last entries leaves a shorter chain that fits: keep the hash of the last line (:attr:`Chain.head`)
elsewhere, or sign. No id is written: it appears as a hash with a key that stays with the user, so that whoever has the
file alone cannot test whether an id is in it.

Format: ``docs/reference/formats.md``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydt.errors import ConfigError, InputError
from raydt.sessions.receipt import Receipt
from raydt.version import __version__

FORMAT = "raydt-receipt-1"
#: What tells the hashes of ids from others under the same key.
_PERSON = b"raydt-receipt-id"
#: Digits of a key file, and the least number of bytes of a key.
_KEY_BYTES = 32
_SIGNED = ("public_key", "signature")
#: Also of the entry of a purge: names of files, and the ids whose copies were erased.
_PURGED = ("purged",)
#: Keys of every entry, in the order in which they are written.
ENTRY = (
    "format",
    "previous",
    "time",
    "raydt_version",
    "learner",
    "options_hash",
    "digest_before",
    "digest_after",
    "active_before",
    "active",
    "deleted",
    "inserted",
)


_SHAPES = [ENTRY + purged + signed for purged in ((), _PURGED) for signed in ((), _SIGNED)]


class Key:
    """The secret by which ids are hashed.

    Parameters
    ----------
    secret : bytes
        At least 32, random.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _KEY_BYTES:
            raise ConfigError(f"a key for receipts needs {_KEY_BYTES} random bytes, this one has {len(secret)}")
        self._secret = secret[:64]

    @classmethod
    def read(cls, path: str | Path) -> Key:
        """Read a key file: hexadecimal digits.

        Raises
        ------
        ConfigError
            It cannot be read, or is no key. The message says how to make one.
        """
        remedy = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))' > FILE, and keep it apart"
        try:
            return cls(bytes.fromhex(Path(path).read_text(encoding="utf-8").strip()))
        except (OSError, ValueError, ConfigError) as error:
            reason = getattr(error, "strerror", None) or "it does not hold 64 hexadecimal digits or more"
            raise ConfigError(f"{path}: cannot be used as the key of receipts: {reason}. {remedy}") from error

    def hash(self, number: Any) -> str:
        """Keyed BLAKE2b of an id, 64 hexadecimal digits; an integer and the same digits as text differ."""
        text = f"text:{number}" if isinstance(number, str) else f"integer:{int(number)}"
        return hashlib.blake2b(text.encode(), digest_size=32, key=self._secret, person=_PERSON).hexdigest()

    def hashes(self, ids: Iterable[Any]) -> list[str]:
        """Of some ids, in ascending order: the order of a call is not told."""
        return sorted(map(self.hash, ids))


class Signer:
    """An Ed25519 key that signs entries; needs the package ``cryptography``.

    Parameters
    ----------
    path : str or Path
        The private key as PEM (``openssl genpkey -algorithm ed25519``), without a password.

    Raises
    ------
    ConfigError
        The package is not installed, or the file is no such key.
    """

    def __init__(self, path: str | Path) -> None:
        from_pem, _, Private = _cryptography()
        try:
            key = from_pem(Path(path).read_bytes(), password=None)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read as a private key: {error}") from error
        if not isinstance(key, Private):
            raise ConfigError(f"{path}: is not an Ed25519 key. Make one with: openssl genpkey -algorithm ed25519")
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
        raise ConfigError("signatures need the package cryptography: pip install 'raydt[sign]'") from error
    return load_pem_private_key, ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey


@dataclass(frozen=True)
class Chain:
    """A chain that was read and found whole.

    Attributes
    ----------
    entries : list of dict
    newest : dict
        The entry whose ``digest_after`` is that of the model now: the last one that is not the purge of an older state.
    head : str
        Hash of the last line.
    gaps : list of int
        Entries (from 1 on) before which the model was changed without a receipt in this chain. A purge of an older
        state, whose digest an earlier entry has, makes none.
    signers : list of str
        Public keys that have signed; with none, or if not every entry is signed, ``all_signed`` is False.
    """

    entries: list[dict[str, Any]]
    newest: dict[str, Any]
    head: str
    gaps: list[int]
    signers: list[str]
    all_signed: bool


def append(path: str | Path, receipt: Receipt, key: Key, *, time: str, signer: Signer | None = None) -> dict[str, Any]:
    """Append the entry of a receipt to a chain, which is begun if there is no file, and return it.

    The line is on the disk when this returns. One process at a time may append.

    Parameters
    ----------
    path : str or Path
        The chain.
    receipt : Receipt
        With digests.
    key : Key
    time : str
        When, as the caller would have it.
    signer : Signer, optional

    Raises
    ------
    ConfigError
        The receipt has no digests.
    InputError
        The file is there and is no whole chain, or cannot be written.
    """
    if receipt.digest_before is None or receipt.digest_after is None:
        raise ConfigError("a receipt without digests cannot be chained. Delete with digests=True")
    values = {
        "learner": receipt.learner,
        "options_hash": receipt.options_hash,
        "digest_before": receipt.digest_before,
        "digest_after": receipt.digest_after,
        "active_before": receipt.active_before,
        "active": receipt.active,
        "deleted": key.hashes(receipt.ids.tolist()),
        "inserted": key.hashes(receipt.inserted.tolist()),
    }
    return append_values(path, values, time=time, signer=signer)


def append_values(
    path: str | Path, values: Mapping[str, Any], *, time: str, signer: Signer | None = None
) -> dict[str, Any]:
    """Append an entry with these ``values``, from ``learner`` on; else as :func:`append`."""
    file = Path(path)
    previous = read_chain(file).head if file.exists() and file.stat().st_size else None
    values = {"format": FORMAT, "previous": previous, "time": time, "raydt_version": __version__, **values}
    if signer is not None:
        values["public_key"] = signer.public_key
        values["signature"] = signer.sign(_encoded(values))
    try:
        with file.open("ab") as out:
            out.write(_encoded(values) + b"\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", file=str(file)) from error
    return values


def read_chain(path: str | Path) -> Chain:
    """Read a chain and check its hashes and signatures. O(entries).

    Raises
    ------
    InputError
        It cannot be read, or is not whole: the message names the line.
    """
    try:
        lines = Path(path).read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=str(path)) from error
    if not lines:
        raise InputError("has no receipts", file=str(path))
    entries: list[dict[str, Any]] = []
    newest: dict[str, Any] = {}
    digests: set[str] = set()
    gaps, signers, signed, head = [], dict[str, None](), 0, None
    for row, line in enumerate(lines):
        entry = _entry(line, row, str(path))
        if entry["previous"] != head:
            problem = "does not follow the line before it: one of them was changed, or a line is missing"
            raise InputError(problem, file=str(path), row=row, remedy=_REMEDY)
        follows = not newest or newest["digest_after"] == entry["digest_before"]
        if follows or "purged" not in entry or entry["digest_before"] not in digests:
            gaps += [] if follows else [row + 1]
            newest = entry
        digests |= {entry["digest_before"], entry["digest_after"]}
        if "signature" in entry:
            _verify(entry, row, str(path))
            signers[entry["public_key"]] = None
            signed += 1
        head = "sha256:" + hashlib.sha256(line).hexdigest()
        entries.append(entry)
    return Chain(entries, newest, str(head), gaps, list(signers), signed == len(entries))


_REMEDY = "Compare it with a copy"


def _encoded(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii")


def _entry(line: bytes, row: int, file: str) -> dict[str, Any]:
    """One line, understood."""
    try:
        entry = json.loads(line)
        if not line.endswith(b"\n"):
            raise ValueError("the line does not end")
        if not isinstance(entry, dict) or tuple(entry) not in _SHAPES:
            raise ValueError(f"the keys are not {', '.join(ENTRY)}")
        if entry["format"] != FORMAT:
            raise ValueError(f"the format is {entry['format']!r}, this version reads {FORMAT!r}")
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not a receipt: {error}", file=file, row=row, remedy=_REMEDY) from error
    return entry


def _verify(entry: dict[str, Any], row: int, file: str) -> None:
    """Require that the signature of an entry is that of its public key."""
    _, Public, _ = _cryptography()
    content = _encoded({name: value for name, value in entry.items() if name != "signature"})
    try:
        Public.from_public_bytes(bytes.fromhex(entry["public_key"])).verify(bytes.fromhex(entry["signature"]), content)
    except Exception as error:  # InvalidSignature is no subclass of anything of ours
        raise InputError("the signature is not that of its public key", file=file, row=row, remedy=_REMEDY) from error
