"""All rows of a source that names a column of keys, read once, for any number of keyed streams."""

from __future__ import annotations

from typing import Any

from raydt.encoding.columns import Dictionary
from raydt.keyed.sent import WholeSource
from raydt.sources.stored import StoredSource


class StoredKeys(StoredSource):
    """A :class:`~raydt.sources.stored.StoredSource` with what keyed streams ask of a source: its dictionaries.

    Whoever makes it has had the source read event times, if streams need some. Memory: also that of the dictionaries.
    """

    def __init__(self, source: WholeSource) -> None:
        super().__init__(source)
        self.keys, self.key_kind, self.key_column = source.keys, source.key_kind, source.key_column
        self.label_values = source.label_values
        self._categories, self._labels = source.categories(), source.state(0)["labels"]

    def categories(self) -> dict[str, Dictionary]:
        """Return the dictionaries by column, of all rows."""
        return self._categories

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Return the resolution of positive labels."""
        return {"labels": self._labels}
