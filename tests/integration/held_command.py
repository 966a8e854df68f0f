"""A ``raydt`` command whose main thread is held at named places: ``held_command.py PLACES MARKS arguments...``.

``PLACES`` is a comma-separated list of ``place@n=act``, where a place is one of ``raydt.exchange.messages`` in this
process or
``report``, and ``n`` is the pass it is about, or ``*``. An act is ``mark``, ``pause``, ``sleep`` (a wait in which
Python's handlers run) or ``kernel`` (a call without the interpreter lock, in which they do not). Every pass listed is
marked first, by a line in a file of the place's name in the folder ``MARKS``. The place ``patient`` allows an orderly
end more time than a busy machine could need.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pipelines.running.ending as ending
import pipelines.running.ending as interruption
from pipelines.cli import main
from raydt.exchange.messages import injected

_, places, marks, *arguments = sys.argv
ACTS = {tuple(what.split("@")): act for what, act in (place.split("=") for place in places.split(","))}
passes: Counter[str] = Counter()


def held(place: str) -> None:
    passes[place] += 1
    act = ACTS.get((place, str(passes[place])), ACTS.get((place, "*")))
    if act is None:
        return
    with (Path(marks) / place).open("a") as file:
        file.write("passed\n")
    if act == "sleep":
        time.sleep(60)
    elif act == "pause":
        time.sleep(0.02)
    elif act == "kernel":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000_000)


def slow_report(publish: Callable[..., None]) -> Callable[..., None]:
    def published(*arguments: object) -> None:
        held("report")
        publish(*arguments)

    return published


if ("patient", "*") in ACTS:
    interruption.GRACE_SECONDS, interruption.LIMIT_SECONDS = 50.0, 60.0
ending.publish_report = slow_report(ending.publish_report)
sys.argv[1:] = arguments
with injected(held):
    main()
