"""Evaluation of the FuDyADT paper on the data at hand: measure what is missing, then print or write it.

Every measurement is one row of measurements.csv in the output folder; a stopped run resumes from there.

    python benchmarks/paper/run.py --table 2 --figures       measure, and print these
    python benchmarks/paper/run.py --all                     measure everything
    python benchmarks/paper/run.py --all --quick             the first 3,000 rows of everything
    python benchmarks/paper/run.py --write                   write the results page from what was measured
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where the harness and this folder, as ``paper``, are found

from harness import DATA, PAGES, ROOT, Section, arguments, replace  # noqa: E402 (needs the path)
from paper import tables  # noqa: E402
from paper.bench import FUDYADT, Bench, Folder, MissingError  # noqa: E402

from raydt.sessions.session import compile_kernels  # noqa: E402

RESULTS, DOCUMENT, QUICK_ROWS = ROOT / "benchmarks" / "results", PAGES / "fudyadt.md", 3000

SECTIONS: dict[str, Callable[[Bench, int | None], Section]] = {
    "table 1": tables.data_sets,
    "table 2": tables.equal_time,
    "table 3": tables.grace_periods,
    "table 4": tables.times,
    "table 5": tables.f1_scores,
    "poker": tables.poker,
    "figures": tables.figures,
}


def main() -> None:
    number = {"type": int, "action": "append", "choices": range(1, 6), "default": []}
    switches = dict.fromkeys(("poker", "figures", "all", "write", "quick"), False)
    given = arguments(__doc__, table=number, **switches, data=DATA, out=RESULTS)
    if given.write:
        write(Bench(given.out))
        return
    names = [f"table {n}" for n in given.table] + ["poker"] * given.poker + ["figures"] * given.figures
    names = list(SECTIONS) if given.all else names
    if not names:
        sys.exit("nothing to do: give --table, --poker, --figures, --all or --write")
    compile_kernels(FUDYADT)
    bench = Bench(given.out, Folder(given.data))
    rows = QUICK_ROWS if given.quick else None
    for name in names:
        section = SECTIONS[name](bench, rows)
        print(f"## {name.capitalize()}\n\n{section.text}\n", flush=True)
        for file, picture in section.pictures.items():
            (given.out / file).write_text(picture, encoding="utf-8")
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


if __name__ == "__main__":
    main()
