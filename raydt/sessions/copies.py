"""Where copies of a deleted example may remain, after a deletion and after a purge: what receipts list.

What the model itself keeps is each learner's own (``Traits.stays``); ``update`` puts the paths that it knows in front.
``docs/explanation/erasure.md`` has the same list as a table, and ``raydt doctor`` finds what lies on this machine.
"""

#: After any deletion.
IN_MEMORY = "freed memory of the processes that held them (overwritten when it is used again), swap space, core dumps"

#: Of an estimator.
OF_AN_ESTIMATOR = (
    "the arrays, data frames and files they came from",
    "folders written earlier by save(..., with_examples=True), and copies made of this object",
    "models saved and predictions made while they were in",
    "the lists of categories and classes in this object: a name that only deleted rows had is still there",
)

#: Of requests that a run has read from its source.
OF_A_RUN = (
    "the source itself: its earlier versions, messages and files",
    "checkpoints of the run, until newer ones replace them (checkpoint.max_age), and models and states made from them",
    "predictions, quarantined rows and the log of the run",
)

#: Of a state, after the paths of what it was made from.
OF_ANY_STATE = (
    "models, states and predictions made from any of these",
    "backups and snapshots of these places, and disk blocks of files deleted from them",
)

_OF_A_PURGED_FOLDER = (
    "thresholds of splits, sides of missing numbers and bins in the model, which were chosen while the deleted "
    "examples were in",
    "backups, snapshots and object versions of the folder; disk blocks of files that were deleted or replaced",
    "files in the folder that raydt did not write, and other names (hard links) of those that it did",
    "memory of processes that are still running, swap space, core dumps, and logs of Ray",
)

#: Out of reach of the purge of a run.
OF_A_PURGED_RUN = (
    "the source of the run, its deletion log, and files of ids given to update",
    "states, models, predictions and reports that were written elsewhere, and receipts that were printed",
    *_OF_A_PURGED_FOLDER,
)

#: Out of reach of the purge of a state.
OF_A_PURGED_STATE = (
    "the run or the data that the state was made from, earlier states, and files of ids given to update",
    "models, predictions and reports that were made from it, and receipts that were printed",
    *_OF_A_PURGED_FOLDER,
)
