"""The pages of runs and sweeps in a real browser: schemes, widths, paper, pointer and keyboard, and not one request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import replay
from pipelines.report.page import write_report
from raydt.messages import message
from tests.unit.chromium import Chromium, Tab, executable
from tests.unit.fabricated_run import (
    AUDIT,
    FEATURES,
    best_split_run,
    fabricated_page,
    fabricated_run,
    fabricated_tree,
    rows_of,
    write_model,
)
from tests.unit.fabricated_run import failed as failed_row

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

HOSTILE = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
BOOSTED = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 600},
    "stream": {"model": "sliding_window", "window": 200, "warmup": 200},
    "learner": {"kind": "gbdt", "max_iter": 4, "max_leaf_nodes": 6, "update_every": 50},
    "cluster": {"backend": "in_process"},
    "output": {"report": False, "metrics_every": 50},
}
PAPER = 718  # CSS pixels that A4 leaves between margins of 1 cm

CONTRASTS = """(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.startsWith("rgba(0, 0, 0, 0")) return c; } return "rgb(255, 255, 255)"; };
  const found = {};
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found[`${e.tagName}.${e.className}`] = ratio;
  }
  return found;
})()"""
EMPTY_DRAWINGS = """[...document.querySelectorAll(".drawing svg")].filter((svg) => {
  const box = svg.getBoundingClientRect();
  const drawn = svg.querySelector("path:not(.grid)")?.getAttribute("d");
  return svg.checkVisibility() && (box.width < 150 || box.height < 40 || !drawn);
}).length"""
OUTSIDE = """[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility()
  && !e.closest(".scroll, .tree, .skip, pre") && e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => e.outerHTML.slice(0, 120))"""
SEEN = "[...document.querySelectorAll('.tree .card')].filter((card) => card.checkVisibility()).length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = executable()
    if program is None:
        pytest.skip("no Chromium is installed: none of chromium, google-chrome is on the PATH")
    running = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A usual run, other learners, ten compared, extremes, one that failed early, a sweep, and one of extremes."""
    root = tmp_path_factory.mktemp("runs")
    one = fabricated_run(root / "one", rows=120, rebuilds=2000)
    others = [
        fabricated_run(root / name, rows=60, rebuilds=300, name=name) for name in ("two", "three", "another of many")
    ]
    extreme = fabricated_run(
        root / "extreme",
        rows=450,
        name=HOSTILE * 3,
        classes=[f"{HOSTILE} {k}" for k in range(23)],
        features=[{"name": HOSTILE + "name" * 40, "kind": "numeric"}] * len(FEATURES),
    )
    write_model(extreme, fabricated_tree(classes=23, depth=20, rows=100_000))
    failed = fabricated_run(root / "failed", rows=1, rebuilds=1, status="failed", error="row 17 " * 40, audit=None)
    sweep = rows_of(["learner.epsilon=0.1:2:0.1", "learner.max_depth=5,10"], [0.8 - 0.01 * (k % 7) for k in range(40)])
    axes, rows = rows_of(
        [f"stream.x={','.join(f'{k}{HOSTILE!r:.60}' for k in range(12))}", f"stream.{'y' * 60}=1:20:1"],
        [k / 300 for k in range(240)],
    )
    rows[3:5] = [failed_row(k, {axis.key: rows[k][axis.key] for axis in axes}, HOSTILE * 3) for k in (3, 4)]
    for name, text in (
        ("sweep", fabricated_page(*sweep, verdict=f"{message('sweeps.all_beat')}.")),
        ("wild-sweep", fabricated_page(axes, rows, HOSTILE, "No setting beats it.")),
    ):
        (root / f"{name}.html").write_text(text, encoding="utf-8")
    replay(BOOSTED, root / "boosted")
    return {
        "boosted": write_report([root / "boosted"], root / "boosted.html"),
        "split": write_report([best_split_run(root / "split", audit=AUDIT)], root / "split.html"),
        **{name: root / f"{name}.html" for name in ("sweep", "wild-sweep")},
        "one": write_report([one], root / "one.html"),
        "compared": write_report([one, *(others * 3)], root / "compared.html"),
        "extreme": write_report([extreme], root / "extreme.html"),
        "failed": write_report([failed], root / "failed.html"),
    }


@pytest.mark.parametrize("name", ["one", "boosted", "split", "compared", "extreme", "failed", "sweep", "wild-sweep"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_screen(browser: Chromium, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    tab = Tab(browser, pages[name], width=width, scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate(OUTSIDE) == []
    assert tab.evaluate("document.querySelectorAll('.drawing').length") > 0
    assert tab.evaluate(EMPTY_DRAWINGS) == 0
    assert tab.evaluate(CONTRASTS) == {}
    page = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 27)")
    assert tab.evaluate("window.harmed ?? null") is None
    assert tab.complaints == []
    assert tab.requests == []
    tab.close()


@pytest.mark.parametrize("name", ["one", "boosted", "split", "compared", "extreme", "failed", "sweep", "wild-sweep"])
def test_on_paper(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    tab = Tab(browser, pages[name], width=PAPER, scheme="dark", media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(28, 33, 38)"
    assert tab.evaluate(CONTRASTS) == {}
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    hidden = "[...document.querySelectorAll('nav, .levels, .skip')].filter((e) => e.checkVisibility()).length"
    assert tab.evaluate(hidden) == 0
    kept_whole = (
        "[...document.querySelectorAll('.chart, .card')].every((e) => getComputedStyle(e).breakInside === 'avoid')"
    )
    assert tab.evaluate(kept_whole)
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 25
    assert tab.complaints == []
    tab.close()


def test_the_tree_opens_by_mouse_keyboard_and_levels(browser: Chromium, pages: dict[str, Path]) -> None:
    tab = Tab(browser, pages["one"])
    before = tab.evaluate(SEEN)
    tab.click(".tree details:not([open]) > summary")
    assert tab.evaluate(SEEN) == before + 2
    tab.evaluate("document.querySelector('.tree summary').focus()")
    tab.press("Enter")
    assert tab.evaluate(SEEN) == 1
    tab.press("Enter")
    assert tab.evaluate(SEEN) == before + 2
    nodes = tab.evaluate("document.querySelectorAll('.tree .card').length")
    for level, seen in (("2", 3), ("99", nodes)):
        tab.click(f"[data-levels='{level}']")
        assert tab.evaluate(SEEN) == seen
    assert tab.evaluate("document.querySelector('[data-levels=\"99\"]').getAttribute('aria-pressed')") == "true"
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.close()


@pytest.mark.parametrize("width", [1280, 2000])
def test_cards_do_not_lie_on_each_other(browser: Chromium, pages: dict[str, Path], width: int) -> None:
    tab = Tab(browser, pages["one"], width=width)
    tab.click("[data-levels='99']")
    lying = tab.evaluate(
        "(() => { const boxes = [...document.querySelectorAll('.tree .card')].map((c) => c.getBoundingClientRect());"
        " let n = 0; boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {"
        " if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) n += 1; })); return n; })()"
    )
    assert lying == 0
    tab.close()


def test_numbers_at_the_pointer(browser: Chromium, pages: dict[str, Path]) -> None:
    tab = Tab(browser, pages["one"])

    def legend(chart: str) -> list[str]:
        keys: list[str] = tab.evaluate(f"[...document.querySelectorAll('#{chart} .key b')].map((b) => b.textContent)")
        return keys

    def where(chart: str) -> str:
        text: str = tab.evaluate(f"document.querySelector('#{chart} .where').textContent")
        return text

    ends = legend("quality-window")
    tab.point("#quality-window .drawing")
    assert where("quality-window") == "update 6,000"
    assert where("shape") == "update 6,000"  # charts over one stream are read together
    assert where("margins-depth") == ""
    assert legend("quality-window") != ends
    tab.point("h1")
    assert (where("quality-window"), legend("quality-window")) == ("", ends)
    tab.evaluate("document.querySelector('#quality-window .drawing').focus()")
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    assert where("quality-window") == "update 200"
    tab.close()


def test_without_scripts_everything_is_there(browser: Chromium, pages: dict[str, Path]) -> None:
    tab = Tab(browser, pages["one"], scripts=False)
    before = tab.evaluate(SEEN)
    assert before > 10
    assert tab.evaluate(EMPTY_DRAWINGS) == 0
    assert not tab.evaluate("document.querySelector('.levels').checkVisibility()")
    tab.click(".tree details:not([open]) > summary")
    assert tab.evaluate(SEEN) == before + 2
    assert tab.complaints == []
    tab.close()


def test_a_link_to_a_run_opens_it(browser: Chromium, pages: dict[str, Path]) -> None:
    tab = Tab(browser, pages["compared"])
    assert tab.evaluate("[...document.querySelectorAll('details.run')].filter((e) => e.open).length") == 0
    tab.click("nav a[href='#run-2-name']")
    tab.click("#run-2-name")
    assert tab.evaluate("document.querySelector('#run-2-name').closest('details').open")
    assert tab.evaluate(EMPTY_DRAWINGS) == 0
    tab.close()
