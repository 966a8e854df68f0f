"""Sentences of reports: missing reports and parts of runs, verdicts, and comparisons of runs."""

from raydt.messages import Sentence

_WORTH = "A learner that does not beat both is not worth its cost"

SENTENCES: dict[str, Sentence] = {
    # Folders
    "no_runs": "a report needs at least one run folder",
    "no_run": ("this is not a run: it has no summary.json and no config.yaml", "Give the folder that a replay wrote"),
    "same_run": ("the run is given twice", "Compare it with another run"),
    "sweep": ("this is a sweep, not a run", "Its page, sweep.html, shows at its end how to replay a setting"),
    # What a run lacks
    "no_summary": "There is no summary.json: the run has not finished, or was killed",
    "no_config": "There is no config.yaml",
    "not_read": "{file} cannot be read: {reason}",
    "no_mapping": "{file} is not a mapping",
    "left_out": "{file} cannot be read and is left out: {reason}",
    "no_metrics": "The run wrote no metrics, so there are no curves over the stream",
    "time_axis": "event time, from {first} to {last}",
    "few_points": ("Fewer than two rows of metrics have a value", "A smaller output.metrics_every writes more rows"),
    "no_model": "The run saved no model, so there is no tree to show",
    "damaged_model": "The model is damaged: {reason}",
    "no_work": "The run recorded no work by shards",
    "interrupted": "The run was interrupted ({reason}): figures cover the updates up to that point",
    # Verdicts
    "no_score": "No {quality} was recorded, so there is nothing to compare with the trivial baselines",
    "no_baseline": "The {quality} is {score}. No trivial baseline was recorded to compare it with",
    "loses": "The learner loses to {rivals}: its {quality} is {score}",
    "beats_another": "It beats {rivals}",
    "equals_another": "It equals {rivals}",
    "equals": "The learner is no better than {rivals}: its {quality} is {score}",
    "beats": "The learner beats {rivals}: its {quality} is {score}",
    "window_lost": "In the only window of the stream it was behind the better of the two",
    "window_kept": "In the only window of the stream it was not behind the better of the two",
    "windows_kept": "In none of the {scored} windows of the stream was it behind",
    "windows_lost": "In {lost} of {scored} windows of the stream it was behind the better of the two",
    "classes": ("No-change predicts the last label seen; majority predicts the most frequent label so far", _WORTH),
    "numbers": ("No-change predicts the last label seen; mean predicts the mean of the labels so far", _WORTH),
    "held_out": (
        "A model trained on {rest:,} rows predicts the other {rows}, held out by a hash of their ids; {name} predicts "
        "{rival} of the former. The model of this run is trained on all rows"
    ),
    "nothing_held_out": "No row was held out, so there is no score",
    "before_learned": "Each row of a change log is predicted just before the model learns it",
    "no_audit": "Not run. To check the model against the raw examples:",
    "unfinished": "The run {ended} before the end of its stream: an audit checks the model after {updates}",
    # Recoveries and shards
    "same_model": "The model is identical to that of an uninterrupted run",
    "last_recoveries": "The table shows the last {shown} recoveries",
    "failed_checkpoints": "{checkpoints} failed; see log.jsonl for the cause",
    "idle_shard": "The shard had no work: the coordinator held the whole model",
    "idle_shards": "The shards had no work: the coordinator held the whole model",
    "equal_shards": "All shards worked equally long",
    "busiest_shard": "The busiest shard worked {times} times the mean",
    # Chapters
    "open_chapter": "open",
    "chapters": "Figures count from the beginning of the run. Each chapter is a run folder in {folder}, with a report "
    "of its own",
    # Comparisons of runs
    "digests": "The same stream and model config give the same model digest with any backend, shards and batch size",
    "same_models": "{runs} ended with {same}: their digests are equal",
    "other_models": "Each run ended with {another}: their digests, the fingerprints of models, all differ",
    "some_models": "{same}: {groups}. All other digests differ",
    "no_digest": "{runs} left no digest",
    "other_sources": "The runs read {sources} different sources; their scores are not directly comparable: {groups}",
    "delayed": "Runs with delayed labels are not tested: their tables have predictions of two moments",
    "window_interval": "The interval is a bootstrap over {windows} windows of the metrics, compared in pairs",
    "all_same": "The same in all runs: {figures}",
    "own_keys": "{keys} of learners of one kind only are left out",
    "no_winner": "Fewer than two runs have a score of {quality}, so none wins",
    "no_common_data": "The runs read different data, so none wins",
    "wins": (
        "{winner} wins: its {quality} is {score}, that of {second} {other}. On the same {pairs} predictions the "
        "difference is {difference}, with a 95% interval from {low} to {high}: more than chance"
    ),
    "tied": "No winner: the {quality} of {winner} and of {second} is {score}, equal on the same {pairs} predictions",
    "undecided": (
        "No winner: the {quality} of {winner} is {score}, that of {second} {other}, but the difference on the same "
        "{pairs} predictions, {difference}, may be chance (95% interval from {low} to {high})"
    ),
    "ahead": (
        "{winner} is ahead: its {quality} is {score}, that of {second} {other}. Whether that is chance is not known. "
        "{reason}"
    ),
    "no_predictions": (
        "{run}: without predictions, or windows of the same stream, it cannot be compared prediction by prediction",
        "Replay both with output.predictions: true",
    ),
    "few_windows": (
        "{run}: it has too few windows of metrics for an interval",
        "Replay both with output.predictions: true, or a smaller output.metrics_every",
    ),
    "other_kind": "{run}: its ids or labels are of another kind",
    "no_pair": "{run}: no example was predicted in both runs",
    "other_labels": "{run}: its stream has other labels for the same ids",
    "interval": "The interval is a bootstrap over blocks of neighbouring predictions",
    "mcnemar": "McNemar's test counts what only one run has right; it assumes independence, which fails after a drift",
}
