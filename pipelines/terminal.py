"""The renderer of blocks for a terminal: aligned lines, an empty line between blocks."""

from __future__ import annotations

from pipelines.printing import escaped
from raydt.presentation.blocks import Article, Block, Code, Facts, Items, Table, Text, has_content


def terminal(*blocks: Text | Facts | Table | Items) -> str:
    """Return blocks as lines of text; items follow the text before them without an empty line."""
    shown = [(isinstance(block, Items), "\n".join(lines(block))) for block in blocks if has_content(block)]
    return "".join(
        f"{'' if i == 0 else chr(10) if items else 2 * chr(10)}{text}" for i, (items, text) in enumerate(shown)
    )


def article_text(article: Article) -> str:
    """Return an article as text, each section under its title; charts and trees are left out."""
    blocks: list[Text | Facts | Table | Items] = [Text(article.title), Text(article.what)]
    blocks += map(_textual, article.head)
    for section in article.sections:
        blocks += [Text(f"{section.title}\n{'-' * len(section.title)}"), *map(_textual, section.blocks)]
    return terminal(*blocks)


def _textual(block: Block) -> Text | Facts | Table | Items:
    if isinstance(block, Code):
        return Text(block.text)
    return block if isinstance(block, (Text, Facts, Table, Items)) else Text("")


def lines(block: Text | Facts | Table | Items) -> list[str]:
    """Return the lines of one block; names from data are escaped."""
    if isinstance(block, Text):
        return [escaped(block.text, keep="\n")]
    if isinstance(block, Items):
        return [f"- {escaped(item)}" for item in block.items]
    if isinstance(block, Facts):
        width = max(len(fact.name) for fact in block.facts) + 2
        return [f"{fact.name:<{width}}{escaped(fact.value)}".rstrip() for fact in block.facts]
    cells = [[escaped(cell) for cell in row] for row in (block.columns, *(row.cells for row in block.rows))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [
        [_padded(cell, width, k in block.words) for k, (cell, width) in enumerate(zip(row, widths, strict=True), 1)]
        for row in cells
    ]
    return [*("  ".join(row).rstrip() for row in aligned), *([block.remark] if block.remark else [])]


def _padded(cell: str, width: int, word: bool) -> str:
    return cell.ljust(width) if word else cell.rjust(width)
