"""Errors of the options of commands, and verdicts of commands."""

from raydt.messages import Sentence

_FILE_NAME = "{name!r} cannot be used, since this process encodes the names of files as {encoding}"

_DEMO = """\
Trees on Ray took in {run[inserts]:,} examples and deleted {run[deletes]:,} of them,
at {run[updates_per_second]:,.0f} updates per second. It now holds {run[active]:,} examples.

  accuracy     {scores[accuracy]}, each example predicted just before its insertion
  no change    {scores[no_change]}, if one always predicts the last label
  majority     {scores[majority]}, if one always predicts the most frequent label
  trees        {run[nodes]:,} nodes in all, depth {run[depth]}, after {run[rebuilds]:,} rebuilds of a subtree
  shards       {run[shards]}, in {run[rounds]:,} message rounds ({requests:,} requests)
  promise      every tree equals the one trained from scratch on the examples that are left
  audit        conformance {run[audit][conformance]}, feasibility {run[audit][feasibility]}
  model        {run[model_digest]}

The report is at {path}/report.html
Next: a longer stream, raydt replay configs/gbdt.yaml; then your own data, see docs/tutorials/own-data.md"""

SENTENCES: dict[str, Sentence] = {
    "demo": _DEMO,
    # Options
    "retired": ("{command} was retired", "Use {instead}"),
    "file_name": (_FILE_NAME, "Rename the file"),
    "locale_name": (_FILE_NAME, "Set LC_ALL=C.UTF-8 and unset PYTHONUTF8"),
    "no_config": "give a CONFIG, or --schema",
    "no_receipts": "--receipt-key and --sign apply only with --receipts FILE",
    "no_key": "--receipts needs --receipt-key FILE, the key that hashes ids",
    "no_pages": "{run} is not a file of receipts: --receipt applies only to one",
    "roll_back": (
        "--roll-back changes no state: it needs --receipts FILE and takes no --insert, --delete, --changes, --out or "
        "--dry-run"
    ),
    "no_shards": "--address applies only with --shards N, 2 or more",
    "no_chain": "{run} has no receipts: its source has brought no deletion, or output.receipts is false",
    "not_receipts": (
        "{run} is not a file of receipts: STATE, --receipt-key, --public-key, --id, --subject and --receipt apply only "
        "to one"
    ),
    # train
    "holdout": "{rows:,} rows held out, by a model trained on the other {rest:,}",
    "no_holdout": "none, as stream.holdout = {share:g} holds out no row",
    "after_training": "raydt predict {run} FILE --out FILE2, raydt update {run} --delete FILE --out STATE",
    # predict
    "out_or_explain": "give --out FILE or --explain ROW",
    "only_with_out": "--id, --on-error and --overwrite apply only with --out",
    "only_with_explain": "--tree and --key apply only with --explain ROW",
    "skipped_rows": "warning: skipped {rows}; {first}",
    "unseen_categories": "warning: {rows} with categories the model has never seen, in {columns}",
    "without_model": "warning: {rows} of keys without a model, which have no prediction: {keys}",
    # validate
    "valid": "valid",
    "valid_but": "valid; {skipped} to be skipped",
    "stops": "not usable: the replay would stop at update {update:,}",
    "bad_rows": "not usable: {bad}",
    "first_rows": "{bad} in the first {rows}",
    "all_ids": "checked in all {updates}: {found}",
    "first_ids": "checked in the first {updates}: {found}",
    "other_ids": "checked in the first {updates}: {found}; the replay checks the others as it goes",
    "right_ids": "no id is inserted twice, none is deleted that is not there",
    "wrong_ids": "{wrong} cannot be applied",
    "unknown_length": "not known in advance",
    # verify
    "equal": "equal: training from scratch gives this model",
    "different": "different: the remaining examples do not give {parts}",
    "receipts": "{receipts:,}, a complete chain; {deletions}, {purges}",
    "and_rollbacks": "{receipts}, {rollbacks}",
    "id_deleted": "deleted at {time}, by receipt {receipt}{note}",
    "id_requested": "{said}, as the source asked in {place} (update {update})",
    "id_waits": "{said}; the model takes it in with its next batch of updates",
    "id_unknown": "no receipt names it",
    "id_missing": "not deleted: receipt {receipt} of {time} names it, but it was not in the model then",
    "id_kept": "not deleted: the last receipt that counts for it is {receipt}, of {time}, by which it was {what}",
    "id_undone": "not deleted: receipt {receipt} of {time} deleted it, but receipt {by} went back to an older state",
    "id_against": "NOT DELETED: receipt {receipt} of {time} says that it was, BUT IT IS LIVE in the state: they "
    "contradict each other",
    "id_later": "not deleted in the state, which is older, of update {offset}: receipt {receipt} of {time} deletes it "
    "in update {update}",
    "id_again": "deleted by receipt {receipt} of {time}, but live in the state again: inserted since, or under another "
    "key",
    "id_there": "{said}; it is live in the state",
    "subject_returned": "{said}; only rows that came later are live in the state",
    "id_absent": "{said}; not live in the state",
    "gaps": "the model was changed without a receipt before receipt {receipts}",
    "last_receipt": "belongs to the last receipt",
    "other_moment": "of another moment of the run than the last receipt",
    "no_state": "none is saved yet: what is said of ids is what the receipts say",
    "other_receipt": "does not belong to the last receipt",
    "same_model": "the same model",
    "other_model": "a different model",
    "history": "not possible, since the model depends on its history; run raydt audit",
    "none_live": "none is live",
    "some_live": "{live:,} are live in the state",
    "maybe_key": "{live}, if the receipts have this key: those of an earlier version do not name their key",
    # update and purge
    "changes_alone": "--changes cannot be combined with --insert, --delete or --missing",
    "only_with_changes": "--op, --envelope and --on-error apply only with --changes",
    "known_files": "nothing new: {files}, which the state has",
    "no_updates": "no update in {files}: the state stays as it is, and there is no receipt",
    "passed_over": "{files}, since the state has their contents",
    "copies": "Copies of the deleted examples may remain in:",
    "young": "{folder}: younger than --older-than, nothing done",
    "no_dead": "nothing to do: no file holds an example that is not live",
    "no_ids": "nothing to do: no file holds an example with one of these ids",
    "files": "{removed:,} deleted or renamed; {rewritten:,} rewritten",
    "dry_run": "{files}; nothing changed yet (--dry-run)",
    "left_alone": "Left alone, as raydt did not write them:",
    "out_of_reach": "Copies may remain, out of reach, in:",
}
