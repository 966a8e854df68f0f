"""``train``: one model from all rows at once, with a score on rows that are held out.

Invariant: it is a replay of the stream ``training``, whatever stream the config has; the config of its run says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.config import Config, load_variants
from pipelines.display import Reporter
from pipelines.running.plans import with_address
from pipelines.running.replay import RunResult, replay
from raydt.errors import ConfigError
from raydt.messages import message
from raydt.streams.windows import Training

log = logging.getLogger(__name__)


def train(
    config: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    holdout: float | None = None,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
) -> RunResult:
    """Train one model on all rows at once, and score a model of the same learner on rows that are held out.

    The run folder is one of :func:`pipelines.replay`: ``update``, ``predict``, ``audit`` and ``resume`` take it.

    Parameters
    ----------
    config : Config, mapping or path of a YAML file
        It needs no ``stream``; of one that it has, ``on_error`` and, of a ``training`` stream, ``holdout`` count. A
        warning says what else it has, such as a deletion log.
    out : path or URI, optional
        Run folder, new or empty; ``runs/<UTC>-<config>`` by default.
    holdout : float, optional
        Share of the rows to hold out, by a hash of their ids, in [0, 1): the score is that of a model trained on the
        other rows. The model of the run is trained on all rows. By default that of the config, else 0.2; 0 gives no
        score.
    overrides, address, overwrite, progress
        As of :func:`pipelines.replay`.

    Returns
    -------
    RunResult
        ``metrics`` are those of the rows held out.

    Raises
    ------
    ConfigError
        As of :func:`pipelines.replay`, or a stream of changes.
    InputError, SystemExit
        As of :func:`pipelines.replay`.
    """
    trained = training_config(config, with_address(overrides, address), holdout)
    return replay(trained, out, given=config, overwrite=overwrite, progress=progress)


def training_config(
    config: Config | Mapping[str, Any] | str | Path, overrides: Sequence[str] = (), holdout: float | None = None
) -> Config:
    """Return the config of a training run; parameters and ConfigError as of :func:`train`."""
    share = [] if holdout is None else [f"stream.holdout={holdout}"]
    return load_variants(config, [*overrides, *share], [{}], prepare=_of_all_rows)[0]


def _of_all_rows(data: dict[str, Any], place: str) -> None:
    """Replace the stream of plain values by one of all rows at once, and say in one line what is passed over."""
    stream = data.get("stream")
    given = stream if isinstance(stream, dict) else {}
    model = given.get("model", Training().model)
    if model == "changelog":
        raise ConfigError(message("configs.deleting_stream", model=model).at(place))
    kept = given if model == Training().model else {key: given[key] for key in ("on_error",) if key in given}
    if "deletion_log" in given:
        log.warning("%s: %s", place, message("configs.unused_log", log=given["deletion_log"]))
    elif passed_over := [f"stream.{key}" for key in given if key not in kept]:
        log.warning("%s: %s", place, message("configs.unused_stream", keys=", ".join(passed_over)))
    data["stream"] = {**kept, "model": Training().model}
