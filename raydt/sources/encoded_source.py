"""Labels, keys of models and categories that a source of encoded rows has met."""

from __future__ import annotations

from typing import Any

from raydt.encoding.columns import Dictionary
from raydt.encoding.features import LostFeatures
from raydt.sources.encoder import RowEncoder


class EncodedSource:
    """A source whose rows one encoder has encoded; ``_handed_out`` is the row after the last one that a reader got."""

    _encoder: RowEncoder
    _handed_out: int

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their codes, as known from the rows handed out so far."""
        return self._encoder.labels.classes(self._handed_out)

    @property
    def label_values(self) -> list[Any]:
        """Labels in the order of their codes, as known from the rows read so far."""
        return self._encoder.labels.values()

    @property
    def keys(self) -> list[Any]:
        """Keys of models in the order of their codes, as known from the rows read so far."""
        return self._encoder.keys.values

    @property
    def lost(self) -> LostFeatures:
        """Which features had values, and have none any more, as known from the rows read so far."""
        return self._encoder.lost

    def categories(self) -> dict[str, Dictionary]:
        """Return the dictionaries of the categorical features and of tokens, by column."""
        return self._encoder.categories
