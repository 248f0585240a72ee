"""The store on SQLite does what the specification does, for one client and for several."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from blocking_store import BlockingStore
from store_conformance import StoreConformance


class TestOneClient(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[BlockingStore]:
        store = BlockingStore(tmp_path / "cluster.db", clients=1)
        yield store
        store.close()


class TestSeveralClients(StoreConformance):
    """Every call by another client than the one before."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[BlockingStore]:
        store = BlockingStore(tmp_path / "cluster.db", clients=3)
        yield store
        store.close()
