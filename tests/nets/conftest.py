"""The private Ray that the nets of a session share."""

from tests.integration.conftest import cluster

__all__ = ["cluster"]
