"""The replay job: a stream goes through a learner, and a run folder says what happened."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.config import Config, load_config
from pipelines.logs import log_to
from pipelines.progress import Reporter, Silent
from pipelines.run_folder import RunFolder
from pipelines.running.incarnations import Incarnations
from pipelines.running.interruption import Interruption
from pipelines.running.preparing import features_of, location_of, require_ray, require_useful_shards
from pipelines.running.run import Run, RunResult
from pipelines.saving import open_stream

__all__ = ["RunResult", "replay"]


def replay(
    config: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
) -> RunResult:
    """Run a stream of insertions and deletions through a learner.

    Parameters
    ----------
    config : Config, mapping or path of a YAML file
    out : path or URI, optional
        Run folder, new or empty; ``runs/<UTC>-<config>`` by default.
    overrides : sequence of str
        ``dotted.key=value``, as ``--set`` on the command line.
    address : str, optional
        Ray cluster to use, instead of ``cluster.address``.
    overwrite : bool
        Remove the run that ``out`` holds.
    progress : Reporter, optional

    Returns
    -------
    RunResult
        Of a run that reached the end of its stream, or was interrupted by a signal.

    Raises
    ------
    ConfigError
        A config that cannot be run, or an output folder that is not empty. Nothing has been written.
    SystemExit
        A signal came before there was anything to keep. Nothing has been written.
    InputError
        A bad row or update. The run folder holds everything before it, with status ``failed``.
    """
    config = load_config(config, overrides)
    if address is not None:
        require_ray(config, address)
        config = load_config(config, [f"cluster.address={address}"])
    progress = progress or Silent()
    began = time.perf_counter()
    with Interruption() as interruption:
        folder = RunFolder.create(location_of(out, config.name), overwrite=overwrite)
        try:
            source, _ = open_stream(config)
            features = features_of(source, config)
            require_useful_shards(config.cluster, features)
            where = "on Ray" if config.cluster.backend == "ray" else "in this process"
            progress.stage(f"starting {config.learner.kind} with {config.cluster.shards} shards {where}")
            with Incarnations(config, features) as incarnations, log_to(folder) as context:
                run = Run(config, folder, incarnations, interruption, source.fingerprint(), context)
                return run.run(progress, began)
        except BaseException:
            folder.discard_if_empty()
            raise
