"""Command line: one name per benchmark; tables in Markdown on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gbdt.data import SETS
from measure import machine
from paper.chart import Panel, Style, svg
from paper.markdown import table

#: Pictures, if they are asked for.
PICTURES = Path(__file__).parents[2] / "docs" / "results" / "gbdt"
PEERS = ("lightgbm", "xgboost", "xgboost-cpu", "scikit-learn", "scipy", "ray")

#: Name, module of this folder, and what it shows.
COMMANDS = {
    "training": ("speed", "training time and test accuracy beside LightGBM and XGBoost"),
    "updates": ("speed", "retrain time of LightGBM and XGBoost over our update time"),
    "memory": ("memory", "stored arrays and process peak beside the paper's Table 2"),
    "sparse": ("memory", "51k sparse features within 4 GB"),
    "backdoor": ("backdoor", "inject and remove a backdoor (appendix J, Table 4)"),
    "membership": ("membership", "membership inference (appendix K, Table 9)"),
    "poisoning": ("poisoning", "6,000 label-flipped rows inserted and deleted"),
    "similarity": ("similarity", "C2W, W2C, W2W and phi (appendix I, Table 8)"),
    "leaf-scores": ("leaf_scores", "error of leaf scores on the same structure (appendix N, Table 13)"),
    "ranks": ("ranks", "rank of the old split and robust fractions (Definitions 1 and 2, Figure 2)"),
    "ablation": ("ablation", "time and retrained nodes by |D'|, bins, leaves, alpha, sigma, iterations (appendix O)"),
    "batches": ("cumulative", "5 % -> 100 % -> 5 % and back (Figure 3)"),
    "tenths": ("cumulative", "chronological tenths added, then removed in reverse (Table 7)"),
    "rounds": ("rounds", "exchanges with shards, in process and on Ray"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; ``data`` and ``derivatives`` are empty where the benchmark's own choice is meant."""

    name: str
    data: tuple[str, ...] = ()
    derivatives: tuple[str, ...] = ()
    seeds: int = 5
    plot: bool = False

    def sets(self, *default: str) -> tuple[str, ...]:
        """Names of the data sets."""
        return self.data or default

    def modes(self, *default: str) -> tuple[str, ...]:
        """Values of ``derivatives``."""
        return self.derivatives or default


def show(title: str, header: list[str], rows: list[list[str]], note: str = "") -> None:
    """Print one table."""
    print(f"\n### {title}\n", *([note, ""] if note else []), *table(header, rows), sep="\n", flush=True)


def progress(*words: object) -> None:
    """A line on stderr."""
    print(*words, file=sys.stderr, flush=True)


def draw(request: Request, name: str, grid: list[list[Panel]], styles: dict[str, Style]) -> None:
    """Write a picture, if one is wanted."""
    if request.plot:
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.svg"
        path.write_text(svg(grid, styles))
        progress("wrote", path)


def _installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/gbdt/run.py",
        description="Verification kit and speed of the in-place online GBDT.",
        epilog="; ".join(f"{name}: {what}" for name, (_, what) in COMMANDS.items()),
    )
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("--data", nargs="+", default=(), choices=[*SETS], help="data sets, instead of the usual ones")
    parser.add_argument("--derivatives", nargs="+", default=(), choices=["never", "retrained", "changed_leaves"])
    parser.add_argument("--seeds", type=int, default=5, help="trials, or rounds of a timing")
    parser.add_argument("--plot", action="store_true", help=f"write the figure into {PICTURES.name}/")
    given = parser.parse_args()
    request = Request(given.name, tuple(given.data), tuple(given.derivatives), given.seeds, given.plot)
    print(f"`python benchmarks/gbdt/run.py {' '.join(sys.argv[1:])}`\n")
    print(machine(*filter(_installed, PEERS)), flush=True)
    importlib.import_module(f"gbdt.{COMMANDS[given.name][0]}").run(request)
    print(f"\nLoad average of the last 15 minutes: {os.getloadavg()[2]:.1f}, of {os.cpu_count()} cores.")
