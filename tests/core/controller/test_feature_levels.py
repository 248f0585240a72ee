"""Feature levels: who may change them, to what, and which brokers they keep out."""

import json

import pytest
from cluster_driver import KEY, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import UpgradeType
from tidelog.core.controller.metadata import features, keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import (
    BEFORE_FEATURES,
    TIDELOG_VERSION,
    TRANSACTION_VERSION,
    FeatureRange,
)
from tidelog.core.controller.metadata.metadata_store import Delete, Put, TxnResult
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode

OLD = values.encode_broker("old", (), None, -1, features=())
WITHOUT_LEVEL_1 = tuple(
    each._replace(lowest=2) if each.name == TIDELOG_VERSION else each for each in features.SUPPORTED
)
"""The ranges of later software that no longer supports level 1."""


def level(cluster: Cluster) -> int:
    return image(cluster).tidelog_version


def image(cluster: Cluster) -> ClusterImage:
    found = ClusterImage()
    found.load(cluster.store.range(""))
    return found


def update(
    cluster: Cluster,
    wanted: int,
    kind: UpgradeType = UpgradeType.UPGRADE,
    name: str = TIDELOG_VERSION,
    validate_only: bool = False,
) -> TopicAnswer:
    answer = cluster.request(
        on.UpdateFeaturesReceived(cluster.number(), ((name, wanted, kind),), validate_only)
    )
    assert isinstance(answer, TopicAnswer)
    return answer


def old_store(*brokers: int) -> Cluster:
    """A cluster whose store was written by software without feature levels."""
    cluster = Cluster(*brokers)
    states = []
    for kv in cluster.store.range(keys.BROKER_STATES).kvs:
        fields = json.loads(kv.value)
        fields.pop("features", None)
        states.append(Put(kv.key, json.dumps(fields).encode()))
    cluster.store.txn((), (Delete(keys.FEATURES), *states))
    cluster.run()
    return cluster


def test_a_new_cluster_starts_at_the_newest_level() -> None:
    cluster = Cluster(1, 2, 3)
    assert image(cluster).features == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        TRANSACTION_VERSION: 2,
        TIDELOG_VERSION: 5,
    }
    assert image(cluster).mod_rev(keys.FEATURES) > 0


def test_a_store_without_the_key_is_at_level_1_until_it_is_upgraded() -> None:
    cluster = old_store(1, 2, 3)
    cluster.restart(3)
    found = image(cluster)
    assert found.tidelog_version == 1
    assert keys.FEATURES not in found.mod_revs
    for kv in cluster.store.range(keys.BROKER_STATES).kvs:
        assert "features" not in json.loads(kv.value), "a field of level 2"
    assert update(cluster, 2).error is ErrorCode.NONE
    assert level(cluster) == 2
    for kv in cluster.store.range(keys.BROKER_STATES).kvs:
        assert "features" in json.loads(kv.value)


def test_a_downgrade_removes_the_fields_of_the_higher_level() -> None:
    cluster = Cluster(1, 2, 3)
    assert update(cluster, 1, UpgradeType.SAFE_DOWNGRADE).error is ErrorCode.NONE
    assert level(cluster) == 1
    cluster.restart(2)
    for kv in cluster.store.range(keys.BROKER_STATES).kvs:
        assert "features" not in json.loads(kv.value)
    assert image(cluster).features[TIDELOG_VERSION] == 1


@pytest.mark.parametrize(
    ("wanted", "kind", "name", "reason"),
    [
        (6, UpgradeType.UPGRADE, TIDELOG_VERSION, "Local controller 1 only supports versions 1-5"),
        (0, UpgradeType.SAFE_DOWNGRADE, TIDELOG_VERSION, "only supports versions 1-5"),
        (-1, UpgradeType.UPGRADE, TIDELOG_VERSION, "A feature version cannot be less than 0."),
        (1, UpgradeType.UPGRADE, TIDELOG_VERSION, "Can't downgrade the version of this feature"),
        (1, UpgradeType.UNKNOWN, TIDELOG_VERSION, "does not support the given upgrade type."),
        (1, UpgradeType.UPGRADE, "group.version", "does not support this feature."),
        (1, UpgradeType.UPGRADE, "unknown", "Local controller 1 does not support this feature."),
        (29, UpgradeType.SAFE_DOWNGRADE, "metadata.version", "only supports versions 30"),
    ],
)
def test_a_level_is_refused_as_in_kafka(
    wanted: int, kind: UpgradeType, name: str, reason: str
) -> None:
    cluster = Cluster(1, 2, 3)
    before = image(cluster).features
    answer = update(cluster, wanted, kind, name)
    assert answer.error is ErrorCode.INVALID_UPDATE_VERSION
    assert answer.message.startswith(f"Invalid update version {wanted} for feature {name}. ")
    assert reason in answer.message
    assert image(cluster).features == before


def test_a_downgrade_to_a_higher_level_is_refused() -> None:
    cluster = old_store(1, 2, 3)
    answer = update(cluster, 2, UpgradeType.UNSAFE_DOWNGRADE)
    assert "Can't downgrade to a newer version." in answer.message


def test_validation_alone_changes_nothing() -> None:
    cluster = old_store(1, 2, 3)
    revision = image(cluster).revision
    assert update(cluster, 2, validate_only=True).error is ErrorCode.NONE
    assert image(cluster).revision == revision


def test_all_levels_change_or_none() -> None:
    cluster = old_store(1, 2, 3)
    both = ((TIDELOG_VERSION, 2, UpgradeType.UPGRADE), ("group.version", 1, UpgradeType.UPGRADE))
    answer = cluster.request(on.UpdateFeaturesReceived(cluster.number(), both))
    assert isinstance(answer, TopicAnswer)
    assert answer.error is ErrorCode.INVALID_UPDATE_VERSION
    assert level(cluster) == 1


def test_every_broker_must_support_the_level() -> None:
    cluster = old_store(1, 2, 3)
    cluster.crash(3)
    assert "Broker 3 is down" in update(cluster, 2).message
    session = cluster.store.open_session()
    cluster.store.txn((), (Put(keys.broker_id(3), OLD, session),))
    cluster.run()
    assert "Broker 3 only supports versions 1" in update(cluster, 2).message
    cluster.request(on.UnregisterBrokerReceived(cluster.number(), 3))
    assert update(cluster, 2).error is ErrorCode.NONE


def test_the_ranges_of_a_broker_that_is_down_are_known_from_level_2_on() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.crash(3)
    assert image(cluster).brokers[3].features == features.SUPPORTED
    assert update(cluster, 1, UpgradeType.SAFE_DOWNGRADE).error is ErrorCode.NONE


def test_a_broker_of_older_software_is_not_admitted() -> None:
    cluster = Cluster(1, 2)
    session = cluster.store.open_session()
    result = cluster.store.txn((), (Put(keys.broker_id(3), OLD, session),))
    assert isinstance(result, TxnResult)
    cluster.run()
    assert image(cluster).brokers[3].features == BEFORE_FEATURES
    assert 3 not in image(cluster).states
    for name, lowest in ((TRANSACTION_VERSION, 0), (TIDELOG_VERSION, 1)):
        assert 3 not in image(cluster).states
        answer = update(cluster, lowest, UpgradeType.SAFE_DOWNGRADE, name)
        assert answer.error is ErrorCode.NONE
        cluster.tick(600)
    assert image(cluster).states[3].epoch == result.rev, "level 1 admits it"


def test_older_software_present_at_the_start_keeps_a_new_cluster_at_its_level() -> None:
    old = [BEFORE_FEATURES, features.SUPPORTED]
    assert features.newest_levels(old)[TIDELOG_VERSION] == 1


def test_software_that_no_longer_supports_level_1_forms_a_new_cluster() -> None:
    """Seed 50498: a new store counted as level 1, so no broker was ever admitted."""
    cluster = Cluster()
    for broker in (1, 2):
        cluster.start(broker, supported=WITHOUT_LEVEL_1)
        cluster.heartbeat(broker)
    assert set(image(cluster).states) == {1, 2}
    assert level(cluster) == 5


def test_software_that_is_too_old_for_the_controller_does_not_set_the_first_levels() -> None:
    cluster = Cluster()
    session = cluster.store.open_session()
    cluster.store.txn((), (Put(keys.broker_id(2), OLD, session),))
    cluster.start(1, supported=WITHOUT_LEVEL_1)
    cluster.heartbeat(1)
    assert set(image(cluster).states) == {1}
    assert level(cluster) == 5


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ({TIDELOG_VERSION: 9}, "tidelog.version 9, and this Tidelog supports 1-5; nothing was"),
        ({"later": 1}, "later 1, and this Tidelog does not know it"),
        ({TIDELOG_VERSION: 0}, "run an older Tidelog"),
    ],
)
def test_unsupported_levels_are_named(levels: dict[str, int], text: str) -> None:
    reason = features.refusal(levels)
    assert reason is not None
    assert text in reason


def test_supported_levels_are_accepted() -> None:
    assert features.refusal(features.WITHOUT_KEY) is None
    assert features.refusal({TIDELOG_VERSION: 2}) is None
    assert features.unsupported({"x": 2}, (FeatureRange("x", 1, 3),)) is None


def test_no_revision_of_a_large_cluster_has_fields_above_its_level() -> None:
    """More brokers than one transaction can change: a controller may fail between two."""
    cluster = Cluster(1)
    for broker in range(2, 131):
        cluster.start(broker)
        cluster.stop(broker)
    for _ in range(30):
        cluster.tick(600)
    assert len(image(cluster).states) == 130
    first = cluster.store.revision
    assert update(cluster, 1, UpgradeType.SAFE_DOWNGRADE).error is ErrorCode.NONE
    assert update(cluster, 2).error is ErrorCode.NONE
    changes = cluster.store.watch("", first)
    assert isinstance(changes, list)
    assert len(changes) == 4, "two transactions for each change"
    now, with_ranges = 2, set(image(cluster).states)
    for batch in changes:
        for key, kv in batch.changes:
            assert kv is not None
            if key == keys.FEATURES:
                now = values.decode_features(kv.value)[TIDELOG_VERSION]
            elif b"features" in kv.value:
                with_ranges.add(int(key[len(keys.BROKER_STATES) :]))
            else:
                with_ranges.remove(int(key[len(keys.BROKER_STATES) :]))
        assert now == 2 or not with_ranges
    assert len(with_ranges) == 130


def test_level_2_has_no_offline_replicas() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    _report_offline(cluster)
    known = cluster.partition()
    assert (known.offline, known.leader) == ((1,), 2)
    refused = update(cluster, 2, UpgradeType.SAFE_DOWNGRADE)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.message is not None
    assert "the log directory of t-0 on broker 1 failed" in refused.message
    assert (level(cluster), cluster.partition()) == (5, known)
    assert update(cluster, 2, UpgradeType.UNSAFE_DOWNGRADE).error is ErrorCode.NONE
    known = cluster.partition()
    assert (known.offline, known.lost) == ((), ())
    assert 1 not in (*known.isr, *known.elr)
    assert update(cluster, 3).error is ErrorCode.NONE
    _report_offline(cluster)
    assert cluster.partition().offline == (1,)


def _report_offline(cluster: Cluster) -> None:
    """Broker 1 reports that the log directory of the partition failed."""
    epoch = image(cluster).brokers[1].epoch
    cluster.request(on.LogReportsReceived(cluster.number(), 1, epoch, offline=(KEY,)))


def test_a_safe_downgrade_follows_the_return_of_the_log_directory() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    _report_offline(cluster)
    assert update(cluster, 2, UpgradeType.SAFE_DOWNGRADE).error is not ErrorCode.NONE
    epoch = image(cluster).brokers[1].epoch
    cluster.request(on.LogReportsReceived(cluster.number(), 1, epoch, found=(KEY,)))
    assert cluster.partition().offline == ()
    assert update(cluster, 2, UpgradeType.SAFE_DOWNGRADE).error is ErrorCode.NONE


def test_older_software_returns_only_after_transactions_are_deleted() -> None:
    """It could lead a partition of a transaction, and would write no markers."""
    cluster = Cluster(1, 2, 3)
    create = on.CreateTopicReceived(cluster.number(), TRANSACTIONS_TOPIC, b"\x09" * 16, 1, 3, {})
    assert cluster.request(create).error is ErrorCode.NONE
    refused = update(cluster, 2, UpgradeType.SAFE_DOWNGRADE)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "delete the topic __transaction_state" in (refused.message or "")
    assert level(cluster) == 5
    cluster.request(on.DeleteTopicReceived(cluster.number(), TRANSACTIONS_TOPIC))
    assert update(cluster, 2, UpgradeType.SAFE_DOWNGRADE).error is ErrorCode.NONE


@pytest.mark.parametrize("report_first", [True, False])
def test_no_offline_replica_is_stored_while_the_level_is_lowered(report_first: bool) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    office = cluster.leader
    updates = ((TIDELOG_VERSION, 2, UpgradeType.UNSAFE_DOWNGRADE),)
    downgrade = on.UpdateFeaturesReceived(cluster.number(), updates)
    report = on.LogReportsReceived(cluster.number(), 3, cluster.hosts[3].epoch, (), offline=(KEY,))
    for event in (report, downgrade) if report_first else (downgrade, report):
        cluster.step(office.broker, event)
    cluster.run()
    assert office.answers[downgrade.request].error is ErrorCode.NONE
    assert office.answers[report.request].error is ErrorCode.NONE
    assert level(cluster) == 2
    assert cluster.partition().offline == ()
    assert 3 not in cluster.partition().isr
