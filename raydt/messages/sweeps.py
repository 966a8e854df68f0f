"""Errors of a sweep and its grid, its progress, and its verdict."""

from raydt.messages import Sentence

_EXAMPLE = "Write for example --grid learner.epsilon=0:2:0.1"

SENTENCES: dict[str, Sentence] = {
    # The grid as a whole
    "text": ("grid: a list of texts or a mapping is needed", "Put the text into a list"),
    "no_grid": ("a sweep needs at least one --grid", _EXAMPLE),
    "repeated_key": ("--grid {key}: the key appears twice", "Put all its values into one --grid"),
    "many_settings": ("the grid has {settings:,} settings, but at most {most:,} are possible", "Use a coarser grid"),
    # One axis; {entry} is what the user wrote
    "form": ("--grid {entry}: this is not of the form a.b=START:STOP:STEP or a.b=v1,v2,v3", _EXAMPLE),
    "key": (
        "--grid {entry}: a grid takes keys of learner and stream, {others}. All settings share their rows, and no "
        "other key changes the model",
        "Use --set for keys that are the same in all settings",
    ),
    "no_value": ("--grid {entry}: no values", "Write at least one value"),
    "repeated_value": ("--grid {entry}: the value {value} appears twice", "Remove one"),
    "range": ("--grid {entry}: a range is START:STOP:STEP, three numbers", "Write for example 0:2:0.1"),
    "yaml": "--grid {entry}: {problem}",
    "no_step": ("--grid {entry}: the step is 0", "Give the distance between two values"),
    "step_sign": ("--grid {entry}: steps of {step} never lead from {first} {way} to {last}", "Change the sign"),
    "many_values": ("--grid {entry}: more than {most:,} values", "Take a larger step"),
    # Settings
    "numbers": (
        "a sweep compares accuracies, but the learner predicts numbers (squared_error)",
        "Replay the settings one by one, and give their folders to raydt report",
    ),
    # Progress
    "reading": "reading the source",
    "starting_here": "starting {settings:,} settings in this process",
    "starting_on_ray": "starting {settings:,} settings on Ray",
    "interrupted": "interrupted: {done:,} of {settings} done",
    "first_setting": "# The first setting of a sweep, {setting}; sweep.json holds the values of the others",
    # Verdicts and remarks
    "cut_short": "Interrupted ({reason}) after {done} of {settings} settings",
    "failed": "{failed} of the settings failed; a table gives the reasons",
    "all_beat": "Every setting beats the trivial predictors",
    "some_beat": "{better:,} of {settings:,} settings beat the better baseline ({baseline}, accuracy {level})",
    "no_accuracy": "No setting has an accuracy to draw",
    "promised": (
        "Promised: yes if a theorem of the method guarantees its splits with this setting",
        "sweep.parquet has more columns; curves.parquet has the scores along the stream",
    ),
    "means": "Numbers are means of the trials",
    "best_shown": "the best {shown} by accuracy; all {settings:,} are in sweep.parquet",
    "replay_best": "To replay the setting of the best accuracy with everything a run writes:",
}
