"""Count how large a checkout is and what a value passes in it, and print both checkouts side by side.

    python benchmarks/house.py [CHECKOUT] [--before OTHER_CHECKOUT]
    python benchmarks/house.py --check
    python benchmarks/house.py --before OTHER_CHECKOUT --picture docs/images/house.svg

``--check`` holds the product to ``benchmarks/budget.json``: its tokens without docstrings and comments, and its files.
The budget only falls. Whoever raises a number says in the same commit why a stranger should accept it. The check also
names files that are longer than 800 lines, and fragments of fewer than 60.

The upper figures are counted in the sources. The lower ones are counted in one small replay from a CSV file, in a
process of its own: the functions that receive the config, the types of record that carry a marked row, and how often
the bytes of the file are read. A setting is a dotted key of the config; one that several kinds of source, stream or
learner share counts once.

``--picture`` draws both checkouts as houses on one scale: a room is a folder, each strip in it a file.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1]
PRODUCT = ("raydt", "actors", "pipelines")
#: Parameters from which a function has many, and words from which a text is a sentence.
MANY_PARAMETERS, SENTENCE_WORDS = 8, 4
#: Lines above which a file is too long, and below which it is a fragment.
LONG, FRAGMENT = 800, 60
#: What may have a docstring.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: A number that only the marked row has.
MARK = 0.123456789012345

_KERNELS = ("kernel", "inner_kernel", "inlined_kernel", "emitted_kernel", "task_kernel")
_WORD = re.compile(r"[A-Za-z]+")


def trees(root: Path, *folders: str) -> Iterator[tuple[ast.Module, str]]:
    """Yield the syntax tree and the text of each Python file in some folders."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            yield ast.parse(text), text


def tokens_of(text: str) -> int:
    """Count the tokens of a Python file without docstrings, comments, line ends and indentation."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docs |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    none = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    return sum(
        token.type not in none and not (token.type == tokenize.STRING and token.start[0] in docs)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def sizes(root: Path) -> dict[str, int]:
    """Count the tokens and the files of the product."""
    found = [text for _, text in trees(root, *PRODUCT)]
    return {"tokens": sum(map(tokens_of, found)), "files": len(found)}


def check(root: Path) -> None:
    """Exit with an error if the product is larger than its budget; print files that are too long or fragments."""
    budget = json.loads((root / "benchmarks" / "budget.json").read_text("utf-8"))
    found = sizes(root)
    for path in sorted(path for folder in PRODUCT for path in (root / folder).rglob("*.py")):
        lines = path.read_text("utf-8").count("\n")
        if lines > LONG or (lines < FRAGMENT and path.name != "__init__.py"):
            print(f"warning: {path.relative_to(root)} has {lines} lines")
    for name, value in found.items():
        print(f"{name:7} {value:>9,} of {budget[name]:,}")
    above = [name for name, value in found.items() if value > budget[name]]
    if above:
        raise SystemExit(f"The product has more {' and '.join(above)} than benchmarks/budget.json allows.")


class Room(NamedTuple):
    """One folder of the product: lines of each of its files, and how many of its imports name each other folder."""

    files: list[int]
    imports: Counter[str]

    @property
    def lines(self) -> int:
        return sum(self.files)


def rooms(root: Path) -> dict[str, Room]:
    """Return the folders of the product by path; each learner has its own, and deeper folders belong to these."""
    texts = {
        path.relative_to(root): path.read_text("utf-8") for name in PRODUCT for path in (root / name).rglob("*.py")
    }
    homes = {
        path: "/".join(path.parts[: min(len(path.parts) - 1, 2 + (path.parts[1] == "learners"))]) for path in texts
    }
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): home for path, home in homes.items()}
    found = {home: Room([], Counter()) for home in sorted(set(modules.values()))}
    for path, text in sorted(texts.items()):
        room = found[homes[path]]
        room.files.append(text.count("\n"))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = {modules.get(f"{node.module}.{alias.name}", modules.get(node.module)) for alias in node.names}
                room.imports.update(name for name in named if name and name != homes[path])
    return found


def floors(found: dict[str, Room], most: float) -> list[list[str]]:
    """Stack the rooms: packages, then what imports most of the others on top; a floor has about ``most`` lines."""

    def height(name: str, seen: tuple[str, ...] = ()) -> int:
        below = {other for other, count in found[name].imports.items() if count >= found[other].imports[name]}
        return 1 + max((height(other, (*seen, name)) for other in below - {*seen}), default=0)

    stack: list[list[str]] = [[]]
    for name in sorted(found, key=lambda name: (-PRODUCT.index(name.split("/")[0]), -height(name), name)):
        last = stack[-1]
        if last and (sum(found[one].lines for one in last) >= most or last[0].split("/")[0] != name.split("/")[0]):
            stack.append(last := [])
        last.append(name)
    low = stack.pop() if sum(found[one].lines for one in stack[-1]) < most / 5 else []
    return [*stack[:-1], stack[-1] + low]


#: Width of a house and pixels between rooms; lines of a floor; square pixels of a line; imports that an arrow needs.
WIDE, GAP, FLOOR, PIXELS, FEWEST = 470, 3, 11_000, 2.6, 12
COLOURS = {"pipelines": "#f2c14e", "actors": "#f78154", "raydt": "#9ad1d4", "learners": "#b8b8ff"}


def house(found: dict[str, Room], title: str, left: float) -> Iterator[str]:
    """Yield the elements of one house: rooms with their files, then arrows; those against the order are red."""
    lines, files, imports = map(
        sum, zip(*((r.lines, len(r.files), r.imports.total()) for r in found.values()), strict=True)
    )
    about = f"{title}: {lines:,} lines, {files} files, {imports:,} imports between folders"
    yield f'<text x="{left}" y="14" font-size="13" font-weight="bold">{about}</text>'
    places, y = {}, 24.0
    for floor in floors(found, FLOOR):
        tall, x = PIXELS * sum(found[name].lines for name in floor) / WIDE, left
        for name in floor:
            room, wide = found[name], PIXELS * found[name].lines / tall
            package = "learners" if "/learners/" in name else name.split("/")[0]
            label, places[name] = name.split("/")[-1], (x + wide / 2, y, tall)
            box = f'x="{x:.1f}" y="{y:.1f}" width="{max(wide - GAP, 1):.1f}" height="{tall:.1f}"'
            yield f'<rect {box} fill="{COLOURS[package]}"><title>{name}: {len(room.files)} files</title></rect>'
            ends = (x + sum(room.files[:i]) / room.lines * (wide - GAP) for i in range(1, len(room.files)))
            strips = "".join(f"M{end:.1f} {y:.1f}v{tall:.1f}" for end in ends)
            yield f'<path d="{strips}" stroke="#fff" stroke-width=".6"/>'
            if wide > 9:
                turn = 5.5 * len(label) > wide - GAP
                spot = f"translate({x + (wide - GAP) / 2 + 3 * turn:.1f} {y + tall / 2 + 4 * (not turn):.1f})"
                number = "" if turn or tall < 30 else f'<tspan x="0" dy="11" fill="#555">{room.lines:,}</tspan>'
                yield f'<text transform="{spot}{" rotate(-90)" * turn}" text-anchor="middle">{label}{number}</text>'
            x += wide
        y += tall + GAP
    for name, room in found.items():
        for other, count in sorted(room.imports.items()):
            (x1, y1, tall1), (x2, y2, tall2) = places[name], places[other]
            if count >= FEWEST:
                colour = "#c1121f" if y2 < y1 else "#333"
                begin, end = (y1, y2 + tall2) if y2 < y1 else (y1 + tall1, y2) if y2 > y1 else (y1 + tall1 - 4,) * 2
                bend = (begin + end) / 2 if y1 != y2 else begin - 14
                path = f"M{x1:.1f} {begin:.1f}C{x1:.1f} {bend:.1f} {x2:.1f} {bend:.1f} {x2:.1f} {end:.1f}"
                style = f'stroke="{colour}" stroke-width="{count**0.5 / 5:.1f}" opacity="{1 if y2 < y1 else 0.5}"'
                yield f'<path d="{path}" fill="none" {style} marker-end="url(#head)"/>'


def picture(before: Path, now: Path) -> str:
    """Draw two checkouts side by side; equal checkouts give equal bytes."""
    sides = [*house(rooms(before), "Before", 0.0), *house(rooms(now), "Now", WIDE + 30.0)]
    head = '<marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" orient="auto">'
    head = f'<defs>{head}<path d="M0 0L6 3L0 6z"/></marker></defs>'
    size = f'viewBox="0 0 {2 * WIDE + 30} 570" font-family="sans-serif" font-size="10"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([opening, '<rect width="100%" height="100%" fill="#fff"/>', head, *sides, "</svg>"]) + "\n"


def _is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in function.decorator_list]
    return any(name in _KERNELS for name in names)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in given)


def _texts(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a file that are no docstrings; an f-string gives its fixed parts."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield every run of ``SENTENCE_WORDS`` words in a text."""
    words = _WORD.findall(text.replace("\\", ""))
    return (tuple(words[i : i + SENTENCE_WORDS]) for i in range(len(words) - SENTENCE_WORDS + 1))


def words(folder: Path) -> int:
    """Count the words of all pages in a folder, as ``wc -w`` does."""
    return sum(len(path.read_text("utf-8").split()) for path in folder.rglob("*.md"))


def counted(root: Path) -> dict[str, Any]:
    """Count what the sources show."""
    tests, product, benchmarks = (list(trees(root, *folders)) for folders in (("tests",), PRODUCT, ("benchmarks",)))
    imports = (
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree, _ in product
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    found = {
        "lines of the product": sum(text.count("\n") for _, text in product), "lines that import": sum(imports),
        "tokens of the product": sum(tokens_of(text) for _, text in product), "files of the product": len(product),
        "lines of the tests": sum(text.count("\n") for _, text in tests), "files of the tests": len(tests),
        "lines of the benchmarks": sum(text.count("\n") for _, text in benchmarks),
        "files of the benchmarks": len(benchmarks), "words of the docs": words(root / "docs"),
        "words of the explanation": words(root / "docs" / "explanation"),
    }  # fmt: skip
    functions, long, kernels = 0, 0, 0
    others: list[str] = []
    classes, sentences = Counter[str](), dict[str, set[tuple[str, ...]]]()
    for tree, _ in trees(root, *PRODUCT):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                if _parameters(node) >= MANY_PARAMETERS:
                    counts = _is_kernel(node) or node.name == "__init__"
                    long, kernels = long + 1, kernels + counts
                    others += [] if counts else [node.name]
            elif isinstance(node, ast.ClassDef):
                classes[node.name] += 1
        sentences |= {text: set(_runs(text)) for text in _texts(tree) if len(_WORD.findall(text)) >= SENTENCE_WORDS}
    quoted = {run for tree, _ in trees(root, "tests") for text in _texts(tree) for run in _runs(text)}
    pinned = sum(bool(runs & quoted) for runs in sentences.values())
    return found | {
        "functions": functions,
        f"functions with {MANY_PARAMETERS} or more parameters": long,
        "of these, kernels and constructors": kernels,
        "of these, other functions": len(others),
        "class names used more than once": sum(uses > 1 for uses in classes.values()),
        "sentences": len(sentences),
        "sentences that tests quote, in percent": round(100 * pinned / max(len(sentences), 1)),
        "_others": sorted(others),
    }


_PROBE = '''
import json, os, sys
from pathlib import Path
import numpy as np
import pyarrow as pa

root, data, out, mark = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
sys.path.insert(0, root)
import click
from pipelines.cli import cli
from pipelines.config import Config
from pipelines import replay

def settings(node, key=""):
    """Return the dotted keys that a user can set; one that several kinds or models share counts once."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    below = [settings(value, f"{key}.{name}") for name, value in node.get("properties", {}).items()]
    below += [settings(part, key) for word in ("anyOf", "oneOf", "allOf") for part in node.get(word, [])]
    found = set().union(*below) - {key}
    return found or {key}

def holds(value, depth=2):
    """Return True if an object has the marked number in an array of its own."""
    if isinstance(value, np.ndarray):
        if value.dtype.names:
            return any(holds(value[name], 0) for name in value.dtype.names)
        return value.dtype == np.float64 and 0 < value.size < 100_000 and bool((value == mark).any())
    if isinstance(value, (pa.RecordBatch, pa.Table)):
        return any(holds(column.to_numpy(zero_copy_only=False), 0) if isinstance(column, pa.Array) else
                   any(holds(chunk.to_numpy(zero_copy_only=False), 0) for chunk in column.chunks)
                   for column in value.columns if pa.types.is_floating(column.type))
    if depth and isinstance(value, (list, tuple)) and len(value) < 50:
        return any(holds(item, depth - 1) for item in value)
    names = getattr(type(value), "__dataclass_fields__", None) or getattr(value, "__dict__", ())
    return bool(depth) and any(holds(getattr(value, name, None), depth - 1) for name in names)

stations, records, passing = set(), set(), set()
def profile(frame, event, argument):
    code = frame.f_code
    if event not in ("call", "return") or root not in code.co_filename or "/.venv/" in code.co_filename:
        return
    where = f"{os.path.relpath(code.co_filename, root)}:{code.co_qualname}"
    values = [argument] if event == "return" else [
        frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    for value in values:
        if isinstance(value, Config):
            stations.add(where)
        kind = type(value)
        of_arrow = isinstance(value, (pa.RecordBatch, pa.Table))
        ours = kind.__module__.split(".")[0] in ("raydt", "actors", "pipelines")
        plain = hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__")
        if (of_arrow or (ours and plain)) and holds(value):
            records.add(kind.__name__)
            passing.add(where)

config = {"source": {"kind": "csv", "path": data, "label": "y"}, "stream": {"model": "sliding_window", "window": 100},
          "learner": {"kind": "fudyadt"}, "cluster": {"backend": "in_process"}, "output": {"report": False}}
replay(config, out=out + "-warm")  # imports and compiled kernels
read = lambda: int(Path("/proc/self/io").read_text("utf-8").split("rchar:")[1].split()[0])
before = read()
replay(config, out=out + "-read")
after = read()
sys.setprofile(profile)
replay(config, out=out)
sys.setprofile(None)
schema = Config.model_json_schema()
print(json.dumps({
    "functions that receive the config": len(stations),
    "functions that a marked row passes": len(passing),
    "types of record of a row": len(records),
    "reads of the source file": round((after - before) / Path(data).stat().st_size, 1),
    "settings": len(settings(schema)),
    "commands": len(cli.commands),
    "_records": sorted(records),
    "_stations": sorted(stations),
}))
'''


def passed(root: Path) -> dict[str, Any]:
    """Count what the config and a row pass in a replay."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "rows.csv")
        with data.open("w", encoding="utf-8") as file:
            file.write("a,b,c,y\n")
            for i in range(60_000):
                a = MARK if i == 250 else (i * 7919 % 10_007) / 10_007
                file.write(f"{a},{(i * 104_729 % 9973) / 9973},{i % 17},{int(a > 0.5)}\n")
        command = [sys.executable, "-c", _PROBE, str(root), str(data), str(Path(folder, "run")), repr(MARK)]
        result = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder, check=False)
        if result.returncode:
            raise SystemExit(result.stderr)
        found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=HERE)
    parser.add_argument("--before", type=Path, help="an earlier checkout to compare with")
    parser.add_argument("--names", action="store_true", help="print which functions and records were counted")
    parser.add_argument("--check", action="store_true", help="hold the product to its budget")
    parser.add_argument("--picture", type=Path, help="write a drawing of both checkouts to this file (SVG)")
    given = parser.parse_args()
    if given.check:
        check(given.checkout.resolve())
        return
    roots = [root.resolve() for root in (given.before, given.checkout) if root]
    if given.picture:
        given.picture.write_text(picture(*roots), "utf-8")
        return
    found = [counted(root) | passed(root) for root in roots]
    for name in found[-1]:
        if not name.startswith("_"):
            print(f"{name:45}", *(f"{figures.get(name, '-'):>9}" for figures in found))
        elif given.names:
            print(name[1:], *(figures.get(name) for figures in found), sep="\n  ")


if __name__ == "__main__":
    main()
