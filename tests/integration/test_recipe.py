"""The recipe of ``docs/how-to/cluster.md`` as printed, on a machine of its own as far as it can tell.

The commands run in namespaces of their own: of processes, so that ``ray stop`` ends no other Ray; and of the network,
so that no port is taken. The network has an address beside loopback, on which nothing may listen.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import pipelines
from pipelines.display import Reporter
from raydt.messages import message
from tests import namespaces, pages
from tests.nets.test_nodes import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

PAGE = ROOT / "docs" / "how-to" / "cluster.md"
#: What is asked between the blocks of the recipe: who listens, and on which address.
LISTENERS = """
{python} -c 'import json, psutil
print(json.dumps(sorted({{c.laddr.ip for c in psutil.net_connections("tcp") if c.status == "LISTEN"}})))' >> {out}
"""
#: A job that asks for more CPUs than the head has.
TOO_LARGE = """
ray job submit --working-dir . -- python -m pipelines.cli replay configs/cluster.yaml --out {out}/large \
    --set cluster.shards=4 > {out}/said 2>&1 && exit 1
"""
#: The run is stopped at work: the first incarnation of the coordinator comes no further than the end of the warm-up,
#: whose messages end where a checkpoint is due.
HELD = "export RAYDT_FAULTS=coordinator.before_batch@5#1=hang\n"
KEPT = "\ncheckpoint: {every_updates: 30000}\n"


def recipe() -> list[str]:
    """The blocks of the section, in their order."""
    return [block.text for block in pages.blocks(PAGE) if "test_recipe.py" in block.reason]


def clone(folder: Path) -> Path:
    """A clone without what git ignores."""
    ignored = shutil.ignore_patterns(".*", "runs", "__pycache__", "tests", "docs", "benchmarks", "*.egg-info")
    return Path(shutil.copytree(ROOT, folder, ignore=ignored))


@pytest.mark.timeout(1800)
def test_the_recipe_as_printed(tmp_path: Path) -> None:
    start, submit, resume = recipe()
    here = clone(tmp_path / "clone")
    config = here / "configs" / "cluster.yaml"
    config.write_text(config.read_text().replace("cluster:", "cluster:\n  patience_seconds: 600") + KEPT)
    asked = LISTENERS.format(python=sys.executable, out=tmp_path / "listeners")
    large = TOO_LARGE.format(out=tmp_path)
    namespaces.run(HELD + "\n".join([start, submit, asked, large, asked, resume]), here, seconds=1700)

    for line in (tmp_path / "listeners").read_text().splitlines():
        addresses = json.loads(line)
        assert addresses
        assert all(address.removeprefix("::ffff:").startswith("127.") for address in addresses), addresses
    said = (tmp_path / "said").read_text()
    lacking = message("cluster.lack", needed=5, resource="CPUs", there=3, free=0)
    assert str(message("cluster.too_small", lacking=lacking)).partition(" (")[0] in said
    assert message("cluster.too_small", lacking=lacking).remedy in said

    summary = json.loads((here / "runs" / "first" / "summary.json").read_text())
    assert (summary["status"], summary["backend"], summary["shards"]) == ("completed", "ray", 2)
    assert [entry["kind"] for entry in summary["recoveries"]] == ["resumed"], "it was not stopped at work"
    assert [entry["requests"] > 0 for entry in summary["work"]] == [True, True]
    expected = pipelines.replay(
        config, tmp_path / "here", overrides=["cluster.backend=in_process"], progress=Reporter()
    )
    assert summary["model_digest"] == expected.digest
