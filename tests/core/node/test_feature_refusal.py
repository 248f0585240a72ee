"""A broker does not run on a store whose feature levels its software does not support."""

from node_cluster import Cluster

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.features import SUPPORTED, TIDELOG_VERSION
from tidelog.core.controller.metadata.metadata_store import Delete, Put
from tidelog.core.controller.metadata.registrations import encode_features

NEWER = Put(keys.FEATURES, encode_features({"tidelog.version": 9}))


def test_broker_does_not_start_and_a_running_one_stops() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.controller()
    cluster.store.txn((), (NEWER,))
    cluster._notify()
    cluster.run_until(lambda: 1 in cluster.halted)
    assert "tidelog.version 9, and this Tidelog supports 1-5" in cluster.halted[1].reason
    cluster.start(2)
    cluster.run_until(lambda: 2 in cluster.halted)
    assert "tidelog.version 9" in cluster.halted[2].reason
    assert keys.broker_id(2) not in {kv.key for kv in cluster.store.range("").kvs}


WITHOUT_LEVEL_1 = tuple(
    each._replace(lowest=2) if each.name == TIDELOG_VERSION else each for each in SUPPORTED
)
"""The ranges of later software that no longer supports level 1."""


def test_software_without_level_1_does_not_start_on_a_store_of_before_feature_levels() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.run_until(lambda: cluster.nodes[1].acting)
    cluster.crash(1, proof=True)
    cluster.store.txn((), (Delete(keys.FEATURES),))
    cluster.supported = WITHOUT_LEVEL_1
    cluster.start(2)
    cluster.run_until(lambda: 2 in cluster.halted)
    assert "tidelog.version 1, and this Tidelog supports 2-5" in cluster.halted[2].reason


def test_software_without_level_1_starts_on_a_new_store() -> None:
    cluster = Cluster(supported=WITHOUT_LEVEL_1)
    cluster.start(1)
    cluster.run_until(lambda: cluster.nodes[1].acting)
    assert cluster.nodes[1].image.tidelog_version == 5
