"""Errors of a file of receipts, of its entries, and of keys."""

from __future__ import annotations

from raydt.messages import Sentence

_MAKE_KEY = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))' > FILE, and keep it apart"
_COMPARE = "Compare the file with a copy"

SENTENCES: dict[str, Sentence] = {
    # Keys
    "short_key": "a key for receipts needs {wanted} random bytes, this one has {found}",
    "unread_key": ("{file}: the key of receipts cannot be read: {reason}", _MAKE_KEY),
    "bad_key": ("{file}: the key of receipts must be 64 hexadecimal digits or more", _MAKE_KEY),
    "private_key": "{file}: the private key cannot be read: {reason}",
    "no_ed25519": ("{file}: it is not an Ed25519 key", "Make one with: openssl genpkey -algorithm ed25519"),
    "no_cryptography": ("signatures need the package cryptography", "Run pip install 'raydt[sign]'"),
    # Files
    "no_file": ("cannot hold receipts, as it is not a regular file", "Name a file on a disk"),
    "no_folder": ("cannot be written: {reason}", "Make its folder first, or choose another path"),
    "empty": "the file has no receipts",
    "other_writer": ("{file}: another process is appending a receipt", "Wait until it has ended"),
    "no_digests": ("a receipt without digests cannot be chained", "Delete with digests=True"),
    # Chains
    "not_receipt": ("the line is not a receipt: {reason}", _COMPARE),
    "broken_chain": (
        "the line does not follow the line before it: one of the two was changed, or a line is missing",
        _COMPARE,
    ),
    "other_key": ("{file}, row {row}: the ids are hashed with another key", "Give the key of this chain"),
    "bad_signature": ("the signature is not that of its public key", _COMPARE),
    # Entries
    "key_check": "key_check belongs to format {wanted}, but the format is {format}",
    "half_signed": "public_key and signature belong together",
    "no_purge": "purged is not an object",
    "unsorted": "hashes of ids are not in ascending order",
    "other_active": "active must be active_before without the deleted and with the inserted examples",
    "changing_purge": "a purge must not change the model",
    "cut_off": "it does not end with a line feed",
    "nested": "it is nested too deeply",
    "other_spelling": "raydt writes each key once and in its place, without spaces",
}
