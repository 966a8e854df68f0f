"""Refusals, log lines and problems of a server of predictions."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # The body of a request
    "not_json": ("the body is not JSON: {reason}", "Send one JSON object"),
    "constant": "{name} is no JSON: write null for a missing value",
    "surrogate": "it has half of a pair of UTF-16 surrogates, which is no text",
    "nested": "lists or objects lie too deeply within each other",
    "not_object": ("the body is not a JSON object", 'Send one row, {{"rows": [...]}} or {{"columns": {{...}}}}'),
    "not_rows": ('"rows" is not a list of objects', 'Send {{"rows": [{{"column": value, ...}}, ...]}}'),
    "not_columns": (
        '"columns" is not an object of lists of one length',
        'Send {{"columns": {{"column": [value, ...], ...}}}}',
    ),
    "not_row": ("the row is not an object", 'A row is {{"column": value, ...}}'),
    # Values
    "unknown_column": ("the model has no such column", "Its columns are in the answer to GET /health"),
    "no_text": ("{value} is not text, as all values of this column are", "Send the value as the source has it"),
    "no_number": (
        "{value} is not a number, as the values of this column are",
        "Send the value as the source writes it",
    ),
    "no_scalar": ("the value is a list or an object", "Send a number, text, true, false or null"),
    "no_list": ("the value is not a list of {what}", "Send a list; an empty one if no feature is 1"),
    "no_key": ("no key: it says which model predicts the row", "Fill in the column"),
    "remedy": "Correct the row",
    # Requests
    "path": ("there is no {path} here", "Ask for POST /predict, GET /health or GET /metrics"),
    "method": ("{method} is not for {path}", "Ask for POST /predict, GET /health or GET /metrics"),
    "token": ("the token is missing or wrong", "Send the header Authorization: Bearer TOKEN"),
    "head": ("the request is not HTTP/1.1 with a Content-Length", "Send the body in one piece, not in chunks"),
    "length": ("the request has no Content-Length", "Send the body in one piece, not in chunks"),
    "large": ("the body has more than {most:,} bytes", "Send fewer rows at a time"),
    "large_head": "the header has more than {most:,} bytes",
    "failed": "the request failed: {error}",
    "many": ("the rows have more than {most:,} values, or shares of classes", "Send fewer rows at a time"),
    "full": ("there are too many connections", "Ask again in a few seconds"),
    "waits": ("there is no complete snapshot yet", "Ask again in a few seconds"),
    # The server
    "serving": "serving {place} at http://{host}:{port}",
    "made_token": "token: {token}",
    "swapped": "update {update} is served: digest {digest}",
    "kept": "a snapshot cannot be used (served meanwhile: {served}): {reason}",
    "not_loaded": "not loaded: {reason}",
    "loader_ended": "the process that loads it has ended",
    "first": "no model",
    "of_update": "the model of update {update}",
    "address": ("cannot listen at {host}:{port}: {reason}", "Choose another --host or --port"),
    "short_token": ("the token in {variable} has fewer than {least} characters", "Set a longer one, or unset it"),
    "ended": "ended: {requests} answered",
}
