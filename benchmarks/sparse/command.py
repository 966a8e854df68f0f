"""Command line: one name per benchmark; tables in Markdown on stdout, progress on stderr."""

from __future__ import annotations

from dataclasses import dataclass

from kit import Kit
from paper.chart import Panel, Style
from sparse.data import SETS

#: Name, module of this folder, and what it shows.
COMMANDS = {
    "speed": ("speed", "UPDGINI and UPDENT beside the scan, a query after every update; insertions and windows"),
    "dimension": ("dimension", "time per update by the number of features"),
    "alpha": ("alpha", "filled buckets and time by alpha (Figure 1)"),
    "points": ("points", "time and filled buckets by the number of rows (Figures 2, 3)"),
    "density": ("density", "time by the number of features and by density (Figure 4)"),
    "datasets": ("datasets", "real data: time, worst ratio, what auto chooses (Tables 1, 2, Figure 5)"),
    "memory": ("memory", "bytes per seen and per unseen feature"),
    "tree": ("tree", "the sparse fully dynamic tree beside river, the dense tree, and the trivial predictors"),
}
KIT = Kit("sparse", "Benchmarks of the sparse best splits.", COMMANDS, ("river", "ray"))
STYLES = {
    "UPDGINI": Style("#1b6ca8"),
    "UPDENT": Style("#c0392b"),
    "scan, Gini": Style("#1b6ca8", "--"),
    "scan, entropy": Style("#c0392b", "--"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; ``data`` is empty where the benchmark's own choice is meant."""

    name: str
    data: tuple[str, ...] = ()
    seeds: int = 5
    plot: bool = False

    def sets(self, *default: str) -> tuple[str, ...]:
        """Names of the data sets."""
        return self.data or default


def draw(request: Request, name: str, grid: list[list[Panel]]) -> None:
    """Write a picture, if one is wanted."""
    KIT.draw(request.plot, name, grid, STYLES)


def main() -> None:
    """Entry point."""
    parser = KIT.parser()
    parser.add_argument("--data", nargs="+", default=(), choices=[*SETS], help="data sets, instead of the usual ones")
    given = parser.parse_args()
    KIT.run(given.name, Request(given.name, tuple(given.data), given.seeds, given.plot))
