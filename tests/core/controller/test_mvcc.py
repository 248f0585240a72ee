"""The store in memory conforms to its own specification."""

import pytest
from store_conformance import ChainedChecksums, StoreConformance, put

from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.controller.metadata.mvcc import Mvcc


class TestMvcc(StoreConformance, ChainedChecksums):
    @pytest.fixture
    def store(self) -> Mvcc:
        return Mvcc()


def test_freeze_distinguishes_stores() -> None:
    one, other = Mvcc(), Mvcc()
    assert one.freeze() == other.freeze()
    put(one, "a")
    assert one.freeze() != other.freeze()
    other.txn((), (Put("a", b"v"),))
    assert one.freeze() == other.freeze()
