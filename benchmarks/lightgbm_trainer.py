"""The same file through LightGBM: in one process with all cores, and through Ray's ``LightGBMTrainer`` with workers.

The trainer's workers add up their histograms only if they are given its network parameters. Without them each trains
on its part of the rows, and nothing says so: the last column shows how many rows the first tree has.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from works import GBDT, LIGHTGBM

ITERATIONS = GBDT["max_iter"]


class Trained(NamedTuple):
    """Wall seconds from the file to the model, and rows in its first tree."""

    seconds: float
    rows: int


def missing() -> str | None:
    """Return why there is no trainer here; None if there is."""
    try:
        import lightgbm  # noqa: F401
        import ray.train.lightgbm  # noqa: F401
    except ImportError as error:
        return f"skipped: Ray's LightGBMTrainer needs lightgbm and ray[train] ({str(error).partition('.')[0]})"
    return None


def in_process(path: str) -> Trained:
    """Train in this process, with all cores."""
    import lightgbm as lgb
    import pyarrow.parquet as pq

    began = time.perf_counter()
    table = pq.read_table(path)
    data = lgb.Dataset(table.drop_columns(["y"]).to_pandas().to_numpy(), table["y"].to_numpy())
    model = lgb.train({**LIGHTGBM, "num_threads": os.cpu_count()}, data, ITERATIONS)
    return Trained(time.perf_counter() - began, _rows(model))


def on_ray(path: str, workers: int, *, network: bool) -> Trained:
    """Train with workers on the Ray that this process is connected to."""
    import ray.data
    from ray.train import RunConfig, ScalingConfig
    from ray.train.lightgbm import LightGBMTrainer

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        trainer = LightGBMTrainer(
            _loop,
            train_loop_config={"network": network, "rows": f"{folder}/rows"},
            datasets={"train": ray.data.read_parquet(path)},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
        return Trained(time.perf_counter() - began, int(Path(folder, "rows").read_text(encoding="utf-8")))


def _loop(config: dict[str, Any]) -> None:
    """Train in one worker."""
    import lightgbm as lgb
    import ray.train
    from ray.train.lightgbm import get_network_params

    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    given = {**LIGHTGBM, "num_threads": 1, "tree_learner": "data_parallel", "pre_partition": True}
    given |= get_network_params() if config["network"] else {}
    model = lgb.train(given, lgb.Dataset(frame.drop(columns="y"), frame["y"]), ITERATIONS)
    if ray.train.get_context().get_world_rank() == 0:
        Path(config["rows"]).write_text(str(_rows(model)), encoding="utf-8")


def _rows(model: Any) -> int:
    """Rows in the first tree."""
    return int(model.dump_model(num_iteration=1)["tree_info"][0]["tree_structure"]["internal_count"])
