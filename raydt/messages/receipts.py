"""Errors of a file of receipts, of its entries, and of keys."""

from raydt.messages import Sentence

_MAKE_KEY = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))' > FILE, and keep it apart"
_MAKE_PRIVATE = "Make one with: openssl genpkey -algorithm ed25519 -out FILE"
_COMPARE = "Compare the file with a copy"

SENTENCES: dict[str, Sentence] = {
    # Keys
    "short_key": "a key for receipts needs {wanted} random bytes, this one has {found}",
    "unread_key": ("{file}: the key of receipts cannot be read: {reason}", _MAKE_KEY),
    "bad_key": ("{file}: the key of receipts must be 64 hexadecimal digits or more", _MAKE_KEY),
    "private_key": ("{file}: the private key cannot be read: {reason}", _MAKE_PRIVATE),
    "no_ed25519": ("{file}: the file is not a private Ed25519 key as PEM, without a password", _MAKE_PRIVATE),
    "public_key": (
        "--public-key {given}: an Ed25519 public key has 64 hexadecimal digits",
        "Give the digits themselves, as raydt verify RECEIPTS prints them behind: signed by",
    ),
    "no_cryptography": ("signatures need the package cryptography", "Run pip install 'raydt[sign]'"),
    # Files
    "no_file": ("cannot hold receipts, as it is not a regular file", "Name a file on a disk"),
    "no_folder": ("cannot be written: {reason}", "Make its folder first, or choose another path"),
    "remote_run": (
        "receipts need a run folder on a local disk",
        "Choose a local folder, or set output.receipts: false",
    ),
    "of_keys": ("with source.key, output.receipts applies only to a table or topic that is followed", "Remove it"),
    "lost": (
        "the receipt of the run's updates up to {updates} is gone",
        "Put the file back from a copy, or set output.receipts: false in the config.yaml of the run",
    ),
    "other_run": (
        "the receipt of the updates up to {updates} is not what the run comes to now: its chain or its data changed",
        "Put back the file, and the data, that belong to the run",
    ),
    "empty": ("the file has no receipts", _COMPARE),
    "other_writer": ("{file}: another process is appending a receipt", "Wait until it has ended"),
    "no_digests": ("a receipt without digests cannot be chained", "Delete with digests=True"),
    "long_note": (
        "the note of a receipt may have {most} letters, this one has {found}",
        "Write the number of the case, and keep the rest elsewhere",
    ),
    "newest_state": ("{file}: the last receipt is about this very state", "There is nothing to go back from"),
    "unknown_state": (
        "{file}: no receipt is about this state under the options of its learner",
        "Name a state from which, or to which, a receipt of this file leads",
    ),
    # Models and their chains
    "foreign": (
        "the receipts are of another model, {theirs}, and not of {place}, {ours}",
        "Give the chain of this model, or begin a new file",
    ),
    "other_table": (
        "the receipts are of another source, {theirs}, and the run reads {ours}",
        "Put back the file that belongs to the run",
    ),
    "other_learner": (
        "the receipts are of a model of learner {theirs}, and {place} has one of learner {ours}",
        "Give the chain of this model, or begin a new file",
    ),
    "lacking": (
        "the chain lacks the receipt {head} with which {place} was made: it is of another model, or its lines were "
        "changed",
        "Restore the chain from a copy, or begin a new file",
    ),
    "of_run": "run {run}",
    "of_no_run": "which began with the digest {digest}",
    # Chains
    "no_chain": (
        "the file is not a chain of receipts: {reason}",
        "Give the file that raydt update --receipts, or a run, has written",
    ),
    "not_receipt": ("the line is not a receipt: {reason}", _COMPARE),
    "broken_chain": (
        "the line does not follow the line before it: one of the two was changed, or a line is missing",
        _COMPARE,
    ),
    "bad_rollback": (
        "the receipt goes back to an earlier state, but the number of the receipt after which that was is another one",
        _COMPARE,
    ),
    "other_key": ("{file}, row {row}: the ids are hashed with another key", "Give the key of this chain"),
    "bad_signature": ("the signature is not that of its public key", _COMPARE),
    "no_receipt": ("there is no receipt {number}: the file has {receipts}", "Choose a number from 1 to {total}"),
    # Pages
    "of_chain": "A receipt of {file}. Each has the hash of the one before it, so none can be changed unseen",
    "what_deleted": "{rows} deleted from the model at {time}",
    "what_changed": "{deleted} deleted from the model and {inserted} inserted at {time}",
    "what_followed": "No row deleted in updates {updates} of the run, of which it learned until {time}",
    "what_purged": "Copies of {of} erased from files at {time}; the model did not change",
    "what_back": "At {time} the model went back to its state after receipt {to}; later receipts no longer count",
    "what_back_first": "At {time} the model went back to its state before the first receipt; none of them counts",
    "of_all": "all rows that are not in the model",
    "of_rows": "{rows} that are not in the model",
    "undone": "What this receipt says no longer holds: receipt {by} went back to an older model",
    "after_gap": "The model was changed between the receipt before this one and this one, without a receipt",
    "subjects": "{subjects}, all of whose rows were deleted",
    "missing": "{names} of the ids or subjects that were asked for: they had no row in the model",
    "no_note": "no note (--note)",
    "no_files": "No file had a copy",
    "no_work": "Nothing was rebuilt",
    "not_recorded": "Receipts of this earlier version do not record it",
    "remains": "raydt has deleted the rows from the model it wrote. Copies that it cannot reach may be in",
    "digests": "A digest is a fingerprint: whoever has the model can compute it again and compare",
    "check": "With the key of the receipts, this shows whether a row was deleted, when, and by which receipt",
    # Entries
    "key_check": "key_check belongs to every format but the first, and the format is {format}",
    "later_key": "{keys} belong to format {wanted}, and the format is {format}",
    "other_updates": "the updates of source.at are not those of the deleted examples",
    "no_object": "{name} is not an object",
    "no_rollback": "rolled_back is not a number",
    "changing_rollback": "a receipt of a rollback must not delete, insert or purge examples",
    "half_signed": "public_key and signature belong together",
    "no_purge": "purged is not an object",
    "unsorted": "hashes of ids are not in ascending order",
    "other_active": "active must be active_before without the deleted and with the inserted examples",
    "other_keys": "{name} of its keys are not {name} of the receipt",
    "changing_purge": "a purge must not change the model",
    "cut_off": "it does not end with a line feed",
    "no_json": "it is not a JSON object in ASCII",
    "other_hash": "its hash, sha256, is that of other values",
    "nested": "it is nested too deeply",
    "other_spelling": "raydt writes each key once and in its place, without spaces",
}
