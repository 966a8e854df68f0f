"""A model as one of treelite, ONNX, LightGBM or scikit-learn, from its neutral description alone.

One module for each format: ``build(trees, interface)`` makes an object of the format's library from a
:class:`~raydt.trees.shapley.TreeSum` whose origin is 0, ``write(model, path)`` puts it into a file and returns what its
reader has to be told, ``LIBRARIES`` are what it needs, by the names that pip knows, and ``SUFFIX`` is the ending of its
files. Outputs before the link are equal in every bit to those of the learner. What a format cannot say is refused.

Not here: what each learner's model means as trees (``tree_sum`` of its predictor).
"""

from __future__ import annotations

import importlib
import json
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from raydt.errors import InputError
from raydt.export.paths import FormatName, Interface
from raydt.messages import message
from raydt.trees.shapley import TreeSum

__all__ = ["FORMATS", "FormatName", "Interface", "build", "suffix_of", "write"]

#: Names of the formats.
FORMATS: tuple[str, ...] = get_args(FormatName)


def _module(to: str) -> ModuleType:
    if to not in FORMATS:
        raise InputError(message("export.no_format", format=to, formats=", ".join(FORMATS)))
    return importlib.import_module(f"raydt.export.to_{to}")


def suffix_of(to: FormatName) -> str:
    """Return the ending of files of a format."""
    return str(_module(to).SUFFIX)


def build(trees: TreeSum, interface: Interface, to: FormatName) -> Any:
    """Build an object of a library; InputError if it is not installed, or cannot say what the model is."""
    module = _module(to)
    interface.labels(trees)
    try:
        return module.build(trees.with_origin_as_tree(), interface)
    except ImportError as error:
        raise _missing(to, module, error) from error


def write(model: Any, trees: TreeSum, interface: Interface, to: FormatName, path: str | Path) -> Path:
    """Write what :func:`build` has made to ``path``, and its columns and outputs to the file returned."""
    module, target = _module(to), Path(path)
    beside = target.with_name(target.name + ".json")
    unfinished = [file.with_name(f".{file.name}.unfinished") for file in (target, beside)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        told = module.write(model, unfinished[0])
        text = json.dumps({"format": to, **interface.describe(trees), **told}, indent=2, ensure_ascii=False)
        unfinished[1].write_text(text + "\n", encoding="utf-8")
        for file, whole in zip((target, beside), unfinished, strict=True):
            whole.replace(file)
    except ImportError as error:
        raise _missing(to, module, error) from error
    except OSError as error:
        said = message("export.not_written", reason=error.strerror or str(error))
        raise InputError(said, file=str(target)) from error
    finally:
        for file in unfinished:
            with suppress(OSError):  # it was never written, or has its name by now
                file.unlink()
    return beside


def _missing(to: str, module: ModuleType, error: ImportError) -> InputError:
    needed = " and ".join(module.LIBRARIES)
    return InputError(message("export.no_library", format=to, libraries=needed, reason=str(error)))
