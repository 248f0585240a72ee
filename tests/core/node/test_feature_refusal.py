"""A broker does not run on a store whose feature levels its software does not support."""

from node_cluster import Cluster

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.controller.metadata.registrations import encode_features

NEWER = Put(keys.FEATURES, encode_features({"tidelog.version": 9}))


def test_broker_does_not_start_and_a_running_one_stops() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.controller()
    cluster.store.txn((), (NEWER,))
    cluster._notify()
    cluster.run_until(lambda: 1 in cluster.halted)
    assert "tidelog.version 9, and this Tidelog supports 1-3" in cluster.halted[1].reason
    cluster.start(2)
    cluster.run_until(lambda: 2 in cluster.halted)
    assert "tidelog.version 9" in cluster.halted[2].reason
    assert keys.broker_id(2) not in {kv.key for kv in cluster.store.range("").kvs}
