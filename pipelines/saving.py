"""A run's model and state: written at its end, and read back to predict and to audit.

The model holds what predicting needs and no training row: arrays, labels and categories. A state holds everything:
the coordinator, each feature group, and the stream with the dictionaries of its source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from raydt.persistence import MANIFEST, save_folder
from raydt.session import Session
from raydt.sources.base import Source
from raydt.sources.options import open_source
from raydt.streams.base import Stream
from raydt.streams.options import make_stream


def open_stream(config: Config) -> tuple[Source, Stream]:
    """The source and the stream of a config, at their beginning."""
    source = open_source(config.source, Path.cwd())
    return source, make_stream(config.stream, source)


def stream_at(config: Config, seq: int) -> tuple[Source, Stream]:
    """The source and the stream of a config, read again from the beginning up to update ``seq``."""
    source, stream = open_stream(config)
    done, size = 0, config.cluster.batch_size
    while done < seq:
        for batch in stream.batches(min(size, seq - done)):
            done = batch.stop
            if seq - done < size:
                break
    return source, stream


def states_folder(config: Config, folder: RunFolder) -> RunFolder:
    """Where the states of a run are: ``checkpoints`` in its folder, or ``checkpoint.path``."""
    return RunFolder(config.checkpoint.path or f"{folder.location}/checkpoints")


def save_run(
    config: Config, folder: RunFolder, session: Session, source: Source, stream: Stream, seq: int, fingerprint: str
) -> None:
    """Write ``model/`` and ``checkpoints/<seq>/``.

    Parameters
    ----------
    config, folder, session
    source, stream
        At the position of the model.
    seq : int
        Updates done.
    fingerprint : str
        Of the source.
    """
    features = [
        {"name": name, "kind": "categorical" if categorical else "numeric"}
        for name, categorical in zip(source.features.names, source.features.categorical, strict=True)
    ]
    common = {
        "learner": config.learner.model_dump(mode="json"),
        "features": features,
        "classes": source.classes,
        "config_hash": config.model_hash(),
        "source_fingerprint": fingerprint,
        "offset": seq,
    }
    model = {"arrays": session.model(), "categories": source.state().get("categories", {})}
    save_folder(folder.path("model"), "model", common, model, filesystem=folder.filesystem)
    coordinator, groups = session.state()
    components: dict[str, Any] = {"coordinator": coordinator}
    components |= {f"group-{number:03d}": arrays for number, arrays in sorted(groups.items())}
    components["stream"] = stream.state()
    states = states_folder(config, folder)
    save_folder(states.path(str(seq)), "state", common, components, filesystem=states.filesystem)


def last_state(config: Config, folder: RunFolder) -> tuple[RunFolder, str]:
    """The complete state of a run with the largest update number: its filesystem's folder and its name.

    Raises
    ------
    InputError
        There is none.
    """
