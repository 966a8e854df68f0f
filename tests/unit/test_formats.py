"""The number of the format changes with the format: what a run writes is compared with what its format is known by.

``python -m tests.unit.test_formats`` writes ``tests/former/format.json`` anew.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pipelines import replay
from raydt.folders.arrays import FORMAT_VERSION, newest, read_manifest
from raydt.folders.folder import Folder
from raydt.learners import learners
from tests.cases import CASES

KNOWN = Path(__file__).parents[1] / "former" / "format.json"
SHIPPED = [trial for trial in CASES if trial.shipped]
KINDS = sorted({trial.learner.kind for trial in SHIPPED})


def parts_of(folder: Folder) -> set[str]:
    """Keys of ``meta``, and arrays and values of each component, with types and numbers of dimensions."""
    manifest = read_manifest(folder)
    found = {f"{manifest.kind} meta {key}" for key in manifest.meta}
    for entry in manifest.files:
        component = re.sub(r"\d+", "N", entry.component)
        arrays = {f"{name} {kind.dtype} {len(kind.shape)}" for name, kind in (entry.arrays or {}).items()}
        values = set() if entry.arrays else set(json.loads(folder.read(entry.name)))
        found |= {f"{manifest.kind} {component} {part}" for part in arrays | values}
    return found


@functools.cache
def schema(kind: str) -> dict[str, Any]:
    """Everything that models, states and configs of a learner consist of."""
    parts: set[str] = set()
    for trial in (trial for trial in SHIPPED if trial.learner.kind == kind):
        with tempfile.TemporaryDirectory() as scratch:
            run = Folder(replay(trial.config(Path(scratch), updates=40), Path(scratch) / "run").path)
            parts |= parts_of(run.inside("model")) | parts_of(newest(run.inside("checkpoints")))
    return {"options": sorted(learners()[kind].Options.model_fields), "parts": sorted(parts)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_the_format_changes_its_number(kind: str) -> None:
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    assert known["format"] == FORMAT_VERSION, "write tests/former/format.json anew: python -m tests.unit.test_formats"
    assert schema(kind) == known["learners"][kind], (
        "models or states have changed: raise FORMAT_VERSION (raydt/folders/arrays.py); if the learner does not read "
        "the ones before any more, set its `oldest`; then python -m tests.unit.test_formats, and make runs of the new "
        "format with tests/former/runs.py"
    )


def main() -> None:
    """Write down what the present format consists of."""
    content = {"format": FORMAT_VERSION, "learners": {kind: schema(kind) for kind in KINDS}}
    KNOWN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
