"""The evaluation of the FuDyADT paper on the data at hand: measures what is missing, then prints or writes it.

Every measurement is one row of measurements.csv in the output folder; a run that was stopped goes on from there.

    python benchmarks/paper/run.py --table 2 --figure 1      measure, and print these
    python benchmarks/paper/run.py --all                     measure everything
    python benchmarks/paper/run.py --all --quick             the first 3,000 rows of everything
    python benchmarks/paper/run.py --write                   write the results page from what was measured
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from measure import DATA
from paper import tables
from paper.bench import Bench, MissingError
from paper.contestants import FUDYADT
from paper.datasets import Folder
from paper.figures import FIGURES, draw
from paper.markdown import Section, replace

from raydt.sessions.session import compile_kernels

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "development" / "results" / "fudyadt.md"
QUICK_ROWS = 3000

SECTIONS: dict[str, Callable[[Bench, int | None], Section]] = {
    "table 1": tables.data_sets,
    "table 2": tables.equal_time,
    "table 3": tables.grace_periods,
    "table 4": tables.times,
    "table 5": tables.f1_scores,
    "accuracy": tables.accuracy,
    **{f"figure {f.number}": lambda bench, rows, f=f: draw(bench, f, rows) for f in FIGURES},  # type: ignore[misc]
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, action="append", choices=range(1, 6), default=[])
    parser.add_argument("--figure", type=int, action="append", choices=range(1, 6), default=[])
    parser.add_argument("--accuracy", action="store_true", help="Electricity by window and epsilon")
    parser.add_argument("--all", action="store_true", help="every table and figure")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.relative_to(ROOT)}; measures nothing")
    parser.add_argument("--quick", action="store_true", help=f"only the first {QUICK_ROWS:,} rows of each data set")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the Parquet files")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of measurements.csv")
    arguments = parser.parse_args()
    if arguments.write:
        write(Bench(arguments.out))
        return
    names = [f"table {n}" for n in arguments.table] + [f"figure {n}" for n in arguments.figure]
    names += ["accuracy"] * arguments.accuracy
    if arguments.all:
        names = list(SECTIONS)
    if not names:
        parser.error("nothing to do: give --table, --figure, --accuracy, --all or --write")
    compile_kernels(FUDYADT)
    bench = Bench(arguments.out, Folder(arguments.data))
    rows = QUICK_ROWS if arguments.quick else None
    for name in names:
        section = SECTIONS[name](bench, rows)
        print(f"## {name.capitalize()}\n\n{section.text}\n", flush=True)
        for file, picture in section.pictures.items():
            (arguments.out / file).write_text(picture, encoding="utf-8")
    print("\n".join(bench.conditions()))


def write(bench: Bench) -> None:
    """Bring the generated parts of the document and its pictures up to date."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for name, make in SECTIONS.items():
        try:
            section = make(bench, None)
        except MissingError as missing:
            sys.exit(f"{name} has not been measured in full ({missing}): run benchmarks/paper/run.py --all first")
        document = replace(document, section)
        for file, picture in section.pictures.items():
            DOCUMENT.with_suffix("").mkdir(exist_ok=True)
            (DOCUMENT.with_suffix("") / file).write_text(picture, encoding="utf-8")
    document = replace(document, Section("machine", "\n\n".join(bench.conditions())))
    DOCUMENT.write_text(document, encoding="utf-8")
