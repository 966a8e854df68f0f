"""Command line: one name per benchmark; tables in Markdown on stdout, progress on stderr."""

from __future__ import annotations

from dataclasses import dataclass

from ctree.rules import RULES
from ctree.streams import SETS, STREAMS
from kit import Kit
from paper.chart import Panel, Style

#: Name, module of this folder, and what it shows.
COMMANDS = {
    "figure2": ("figure2", "accuracy against number of leaves on the streams of random trees (Figure 2)"),
    "figure3": ("figure3", "performance against number of leaves on real data, in random orders (Figure 3)"),
    "defaults": ("prequential", "accuracy and time of the defaults beside river's Hoeffding trees, on ten streams"),
    "choice": ("choice", "accuracy of the settings among which the defaults were chosen, on ten streams"),
    "drift": ("drift", "accuracy where drift is followed, and over windows of the last examples, on ten streams"),
    "whole": ("whole", "time of a whole replay beside the session's, by length of the stream"),
    "shards": ("shards", "time and bytes on Ray of leaves that predict by naive Bayes, beside majority leaves"),
    "river": ("river", "time and accuracy beside river's HoeffdingTreeClassifier on Electricity"),
}
KIT = Kit("ctree", "Benchmarks of the confidence trees.", COMMANDS, ("river", "scipy"))
STYLES = dict(zip(RULES, (Style("#c0392b"), Style("#1b6ca8", "--"), Style("#2d8a4e", "-.")), strict=True))


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; ``data`` is empty where the benchmark's own choice is meant."""

    name: str
    data: tuple[str, ...] = ()
    seeds: int = 5
    trees: int = 50
    examples: int = 500_000
    settings: int = 12
    rows: int = 50_000
    jobs: int = 1
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
    sets = [*dict.fromkeys([*SETS, *STREAMS])]
    words = "data sets of figure3, defaults, choice, drift, whole, shards"
    parser.add_argument("--data", nargs="+", default=(), choices=sets, help=words)
    parser.add_argument("--trees", type=int, default=50, help="random trees of figure2")
    parser.add_argument("--examples", type=int, default=500_000, help="of each stream of figure2")
    words = "values of c, and of delta for each baseline; of drift so many lines of the table"
    parser.add_argument("--settings", type=int, default=12, help=words)
    parser.add_argument("--rows", type=int, default=50_000, help="of each file of defaults, choice and drift at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with streams of its own")
    given = vars(parser.parse_args())
    KIT.run(given["name"], Request(**{**given, "data": tuple(given["data"])}))
