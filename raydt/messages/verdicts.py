"""Findings of audits, verifications and the doctor, and reasons why there is none."""

from raydt.messages import Sentence

_AT_ONCE = "Checkpoints need storage on which a write is visible at once. Choose another folder"

SENTENCES: dict[str, Sentence] = {
    # Chapters
    "no_chapter_before": "the state that the chapter goes on from is gone, so its own examples are not read again from "
    "the source",
    "other_chapter_before": (
        "the chapter before, {before}, has another model than this one goes on from",
        "Restore its folder from a copy",
    ),
    # Audits
    "past_gone": "the examples stored in the state were checked, and not that they are those of the source, which does "
    "not keep all that the run has read: {reason}",
    "table_gone": "the live examples were not compared with the rows of the table: {reason}",
    "not_stored": "{folder}: the verdict of the audit could not be stored",
    "changed_run": "the run has changed meanwhile",
    "other_data": (
        "the source or the config is no longer what the run has used: {changes}",
        "Restore the data and config.yaml of the run, then audit",
    ),
    "earlier_state": "The state before it, of update {update:,}, is sound: raydt audit {path}",
    # Verifications: what differs from a model trained from nothing
    "state": "the state",
    "digest": "the digest in summary.json",
    "run_state": "the state in checkpoints/",
    "model": "the model in model/",
    "order": (
        "with these options, the model of learner.kind: {kind} depends on the order of the updates and not only on the "
        "live examples, so training it again proves nothing",
        "Use raydt audit, or learner.kind: {kinds} with its default options",
    ),
    "not_signed": "not every receipt is signed by the given public key",
    "ids_without_key": (
        "receipts hold ids only as hashes under a key, and no key is given",
        "Add --receipt-key FILE",
    ),
    # Doctor: facts
    "no_mode": "not set (a private local Ray uses a token)",
    "metrics": "served without a token at {places}",
    "no_metrics": "not served (cluster.metrics_port of a config names a port for metrics)",
    "channel": "a shard, until all shards of its run have connected; admits nobody else",
    # Doctor: where copies of rows may be
    "copy_sessions": "{folder}: logs and spilled objects of {sessions} Ray sessions",
    "copy_plasma": "/dev/shm: the object store of a Ray that is running, or was killed",
    "copy_swap": "swap space: pages of any process; encrypt it, or turn it off",
    "copy_cores": "core dumps of processes that crash: {pattern}",
    # Doctor: whether a folder can hold checkpoints
    "probe_no_name": ("--probe {folder}: names no folder", "Write a path, or a URI such as s3://bucket/folder"),
    "probe_uri": ("--probe {folder}: {problem}", "Write a path, or a URI such as s3://bucket/folder"),
    "probe_file": ("--probe {folder}: is a file", "Choose a folder"),
    "probe_step": ("--probe {folder}: cannot {step}: {reason}", "{remedy}"),
    "other_folder": "Choose another folder",
    "access": "Check the address, the credentials and the network",
    "probe_list": ("--probe {folder}: does not list a file just written", _AT_ONCE),
    "probe_read": ("--probe {folder}: gives back other bytes", _AT_ONCE),
    "probe_still": ("--probe {folder}: still shows a file that was renamed or deleted", _AT_ONCE),
}
