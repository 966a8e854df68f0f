"""A process that waits, with everything imported, and then runs one command after another.

Each line of its input is a JSON list: the arguments of ``raydt``, or ``["save", FOLDER, SEED]``, which fits a model and
saves it. The answer is a line, too: exit code, stdout and stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback

import numpy as np

import pipelines.sweeping
import pipelines.updating
from pipelines.cli import main
from raydt import FullyDynamicTreeClassifier
from raydt.errors import RaydtError

_ = pipelines.sweeping, pipelines.updating


def save(folder: str, seed: str) -> int:
    X = np.random.default_rng(int(seed)).normal(size=(400, 3))
    model = FullyDynamicTreeClassifier().fit(X, (X[:, 0] > 0) + 0)
    try:
        model.save(folder, with_examples=True)
    except RaydtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(model.digest())
    return 0


for line in sys.stdin:
    arguments = json.loads(line)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = save(*arguments[1:]) if arguments[0] == "save" else main(arguments) or 0
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
    print(json.dumps([code, out.getvalue(), err.getvalue()]), file=sys.__stdout__, flush=True)
