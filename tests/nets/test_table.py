"""The table of learners and nets in ``tests/README.md`` is what the nets are parametrised by.

``python -m tests.nets.test_table`` writes it.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from raydt.learners import learners
from tests.cases import CASES, NETS

DOCUMENT = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- nets: python -m tests.nets.test_table -->\n", "<!-- end of nets -->\n"
#: Where nets are.
MODULES = (
    "simulation.test_simulation",
    "nets.test_contract",
    "nets.test_attribution",
    "nets.test_identity",
    "nets.test_trained",
    "nets.test_interrupts",
    "nets.test_owners",
    "nets.test_live_tables",
    "nets.test_keyed_input",
    "nets.test_ray",
    "nets.test_keyed_updates",
    "property.test_keyed_estimators",
    "nets.test_purge",
    "nets.test_previous_labels",
    "nets.test_rounds",
    "nets.test_runs",
    "nets.test_combinations",
    "nets.test_warmup",
    "nets.test_chains",
    "nets.test_array_bounds",
    "nets.test_audit_mutants",
    "fuzz.mutations",
    "property.test_tree_sum",
    "unit.test_export",
    "unit.test_frames",
)


def cell(net: str, kind: str) -> str:
    """How many of the cases of a learner every test run takes, and how many nightly runs do; empty if none."""
    mine = {trial.name for trial in CASES if trial.learner.kind == kind}
    daily, nightly = (len(mine & part) for part in (NETS[net][0], NETS[net][0] | NETS[net][1]))
    if not nightly:
        return ""
    return f"{daily}" if daily == nightly else f"{daily}, nightly {nightly}"


def table() -> str:
    """The table as Markdown."""
    for module in MODULES:
        importlib.import_module(f"tests.{module}")
    kinds = sorted(kind for kind, learner in learners().items() if type(learner).__module__.startswith("raydt."))
    cases = [f"`{kind}` ({len(learners()[kind].cases())})" for kind in kinds]
    lines = [f"| Net | {' | '.join(cases)} |", f"|---{'|---' * len(kinds)}|"]
    lines += [f"| {net} | {' | '.join(cell(net, kind) for kind in kinds)} |" for net in sorted(NETS)]
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    """The document before the table, the table, and the rest."""
    before, rest = DOCUMENT.read_text().split(BEGIN)
    shown, after = rest.split(END)
    return before + BEGIN, shown, END + after


def test_the_document_shows_what_the_nets_take() -> None:
    assert parts()[1] == table(), "python -m tests.nets.test_table writes the table anew"


def test_no_learner_is_left_out_of_a_net() -> None:
    table()
    for net in NETS:
        assert all(cell(net, kind) for kind in learners()), f"the net {net!r} has no case of some learner"


def test_every_learner_has_its_turn_by_day() -> None:
    """Nets take learners in turn: each is taken by a third of those that a daily run takes at all."""
    table()
    cases = {kind: {trial.name for trial in CASES if trial.learner.kind == kind} for kind in learners()}
    nets = [daily for daily, _ in NETS.values() if daily]
    for kind, mine in cases.items():
        assert sum(not mine.isdisjoint(daily) for daily in nets) >= len(nets) / 3, kind


def test_every_module_with_a_net_is_known() -> None:
    """A net whose module is not imported here would be missing in the table."""
    tests = Path(__file__).parents[1]
    uses = ("every_case(", "net(", "noted(")
    found = {
        ".".join(file.relative_to(tests).with_suffix("").parts)
        for file in tests.rglob("*.py")
        if "from tests.cases import" in file.read_text() and any(f"\n@{use}" in file.read_text() for use in uses)
    }
    assert found <= set(MODULES)


def main() -> None:
    """Write the table into the document."""
    before, _, after = parts()
    DOCUMENT.write_text(before + table() + after)


if __name__ == "__main__":
    main()
