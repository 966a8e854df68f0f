"""What a page shows, in a form without words: sections, blocks, their shapes and their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from raydt.presentation.blocks import Article, Beside, Best, Facts, Section, Table, Text, Tree, has_content
from raydt.presentation.charts import ABSENT, Chart

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?%?")
_FIRST, _LAST = 12, 2  #: rows of a table that are listed


def numbers(text: str) -> str:
    """Return the numbers of a text."""
    return " ".join(_NUMBER.findall(text.replace(ABSENT, "0")))


def outline(article: Article) -> Iterator[str]:
    """Return a line for each section, block, series and row of an article."""
    for section in (Section("", article.head, "head"), *article.sections):
        yield f"[{section.key}]"
        for block in filter(has_content, section.blocks):
            yield from (f"  {line}".rstrip() for line in _block(block))


def _block(block: Any) -> Iterator[str]:
    kind = type(block).__name__.lower()
    if isinstance(block, Text):
        yield f"text {block.tone}: {numbers(block.text)}"
    elif isinstance(block, Facts):
        shown = [] if block.kind == "digests" else block.facts
        values = (f"{f.tone} {numbers(f'{f.value} {f.remark} {f.share or str()}')}".strip() for f in shown)
        yield f"facts {block.kind} {len(block.facts)}: {'; '.join(values)}"
    elif isinstance(block, Beside):
        for table in filter(has_content, block.tables):
            yield from _block(table)
    elif isinstance(block, Table):
        yield f"table {block.style} {len(block.rows)} x {len(block.columns)}: {numbers(block.remark)}"
        for row in [*block.rows[:_FIRST], *block.rows[_FIRST:][-_LAST:]]:
            bar = "" if row.share is None else f" {row.tone} {row.share:.4g}"
            yield "  " + "|".join("*" * isinstance(cell, Best) + numbers(cell) for cell in row.cells) + bar
    elif isinstance(block, Chart):
        words = numbers(f"{block.caption} {block.label}")
        yield f"chart {block.key} {len(block.at)} {block.span} {len(block.uprights)}: {words}"
        for panel in block.panels:
            ticks = " ".join(numbers(tick.label) for tick in panel.axis.ticks)
            yield f"  panel {panel.height:g}{' shaded' if panel.shade else ''}: {ticks}"
            for mark in panel.marks:
                shape, n = type(mark.shape).__name__.lower(), len(mark.values)
                some = " ".join(numbers(value) for value in mark.values[:: max(1, -(-n // 5))])
                yield f"    {shape} {mark.tone} {mark.dash} {numbers(mark.now)} of {n}: {some}"
    elif isinstance(block, Tree):
        yield f"tree {len(block.legend)} {len(block.margins)} {block.lines}: {numbers(block.about + block.remark)}"
        if block.icicle:
            yield f"  icicle {block.icicle.rows} {block.icicle.thin}: {len(block.icicle.cells)}"
        for _, root in block.roots:
            cards = [root, *root.children, *(deeper for child in root.children for deeper in child.children)]
            yield f"  {root.cards()} cards"
            for card in cards:
                yield f"    {card.answer} {card.tone} {card.hidden} {card.note.margin_tone}: {numbers(card.detail)}"
    else:
        yield kind + (f" {block.key}" if kind == "heading" else "")
