"""Command line: one name per benchmark; tables in Markdown on stdout, progress on stderr."""

from __future__ import annotations

from dataclasses import dataclass

from gbdt.data import SETS, STREAMS
from kit import Kit
from paper.chart import Panel, Style

PEERS = ("lightgbm", "xgboost", "xgboost-cpu", "scikit-learn", "scipy", "ray")

#: Name, module of this folder, and what it shows.
COMMANDS = {
    "training": ("speed", "training time and test accuracy beside LightGBM and XGBoost"),
    "streams": ("streams", "sliding windows and deletions with default options beside retraining at each step"),
    "updates": ("speed", "retrain time of LightGBM and XGBoost over our update time; default options, then each mode"),
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
    "partial": ("partial", "updating the first iterations and training the others again, beside all of either"),
    "tolerance": ("tolerance", "accuracy and time of a window by kind of derivatives and tolerance"),
    "cells": ("cells", "ns to find the bin of a value beside numpy.searchsorted, and to add a row to a histogram"),
    "threads": ("threads", "training and updates with one thread and more, beside LightGBM with as many: wall time"),
}
#: Values of ``derivatives``, the default first.
MODES = ["bounded", "changed_leaves", "retrained", "never"]
#: All options as the estimators have them; see ``contestants.options_of``.
DEFAULT = "default"
KIT = Kit("gbdt", "Verification kit and speed of the in-place online GBDT.", COMMANDS, PEERS)


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
        """Values of ``derivatives``, or ``DEFAULT``."""
        return self.derivatives or default


def draw(request: Request, name: str, grid: list[list[Panel]], styles: dict[str, Style]) -> None:
    """Write a picture, if one is wanted."""
    KIT.draw(request.plot, name, grid, styles)


def main() -> None:
    """Entry point."""
    parser = KIT.parser()
    parser.add_argument(
        "--data", nargs="+", default=(), choices=[*{**SETS, **STREAMS}], help="data sets, instead of the usual ones"
    )
    parser.add_argument("--derivatives", nargs="+", default=(), choices=[DEFAULT, *MODES])
    given = parser.parse_args()
    KIT.run(given.name, Request(given.name, tuple(given.data), tuple(given.derivatives), given.seeds, given.plot))
