"""What the folders of benchmarks share: one name per benchmark, tables on stdout, progress on stderr, pictures.

A folder has one small module for each benchmark, with a function ``run`` that takes what was asked for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measure import machine
from paper.chart import Panel, Style, svg
from paper.markdown import table

#: Pictures of a folder of benchmarks are in the folder of the same name here.
PICTURES = Path(__file__).parents[1] / "docs" / "development" / "results"


@dataclass(frozen=True, slots=True)
class Kit:
    """One folder of benchmarks.

    Attributes
    ----------
    folder : str
        Its name.
    about : str
        What it is, for ``--help``.
    commands : dict of str to (str, str)
        Names of the benchmarks; the module of the folder, and what it shows.
    peers : tuple of str
        Packages whose versions are named, where they are installed.
    """

    folder: str
    about: str
    commands: dict[str, tuple[str, str]]
    peers: tuple[str, ...] = ()

    def parser(self) -> argparse.ArgumentParser:
        """A parser of the benchmark's name and what all folders know: ``--seeds`` and ``--plot``."""
        parser = argparse.ArgumentParser(
            prog=f"python benchmarks/{self.folder}/run.py",
            description=self.about,
            epilog="; ".join(f"{name}: {what}" for name, (_, what) in self.commands.items()),
        )
        parser.add_argument("name", choices=self.commands)
        parser.add_argument("--seeds", type=int, default=5, help="trials, or rounds of a timing")
        parser.add_argument(
            "--plot", action="store_true", help=f"write the figure into docs/development/results/{self.folder}/"
        )
        return parser

    def run(self, name: str, request: Any) -> None:
        """Print the command, the machine, and what the benchmark prints."""
        print(f"`python benchmarks/{self.folder}/run.py {' '.join(sys.argv[1:])}`\n")
        print(machine(*filter(_installed, self.peers)), flush=True)
        importlib.import_module(f"{self.folder}.{self.commands[name][0]}").run(request)
        print(f"\nLoad average of the last 15 minutes: {os.getloadavg()[2]:.1f}, of {os.cpu_count()} cores.")

    def draw(self, wanted: bool, name: str, grid: Sequence[Sequence[Panel]], styles: dict[str, Style]) -> None:
        """Write a picture, if one is wanted."""
        if wanted:
            path = PICTURES / self.folder / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(svg(grid, styles), encoding="utf-8")
            progress("wrote", path)


def show(title: str, header: list[str], rows: list[list[str]], note: str = "") -> None:
    """Print one table."""
    print(f"\n### {title}\n", *([note, ""] if note else []), *table(header, rows), sep="\n", flush=True)


def progress(*words: object) -> None:
    """A line on stderr."""
    print(*words, file=sys.stderr, flush=True)


def _installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
