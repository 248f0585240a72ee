"""The store in memory is the specification: it conforms, and copies are told by freeze."""

import pytest
from store_conformance import StoreConformance, put

from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.controller.metadata.mvcc import Mvcc


class TestMvcc(StoreConformance):
    @pytest.fixture
    def store(self) -> Mvcc:
        return Mvcc()


def test_freeze_tells_different_stores_apart() -> None:
    one, other = Mvcc(), Mvcc()
    assert one.freeze() == other.freeze()
    put(one, "a")
    assert one.freeze() != other.freeze()
    other.txn((), (Put("a", b"v"),))
    assert one.freeze() == other.freeze()
