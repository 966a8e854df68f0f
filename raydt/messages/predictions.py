"""Errors of predictions, exports and explanations of a saved model."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    "no_class": ("the model has seen no class, so it predicts nothing", "Insert examples first"),
    "no_row": ("the file has no such row", "Rows are numbered from 0"),
    "bad_row": "Correct the row, or give such rows null predictions with --on-error skip",
    "mixed_ids": ("the files hold different types in this column", "Predict the files one by one"),
    "taken_id": ("--id names a column that the output already has", "Rename the column of DATA"),
}
