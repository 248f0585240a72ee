"""AlterClientQuotas at the controller: what is stored, and at which feature level."""

from cluster_driver import Cluster

from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.events import UpgradeType
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import QUOTAS, TIDELOG_VERSION
from tidelog.core.controller.metadata.metadata_copy import decode_copy, encode_copy
from tidelog.core.controller.quota_changes import CHANGES_MAX
from tidelog.core.errors import ErrorCode
from tidelog.core.quotas.entity import Entity, QuotaAlteration
from tidelog.core.wire.controller_calls import decode_call, encode_call

ALICE: Entity = (("user", "alice"),)
EVERY: Entity = (("client-id", None), ("user", None))
RATE = "producer_byte_rate"


def image(cluster: Cluster) -> ClusterImage:
    found = ClusterImage()
    found.load(cluster.store.range(""))
    return found


def alter(cluster: Cluster, *alterations: QuotaAlteration) -> do.TopicAnswer:
    answer = cluster.request(on.AlterQuotasReceived(cluster.number(), alterations))
    assert isinstance(answer, do.TopicAnswer)
    return answer


def rate(entity: Entity, value: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, ((RATE, value),))


def test_quotas_are_stored_and_reach_every_broker() -> None:
    cluster = Cluster(1, 2)

    assert alter(cluster, rate(ALICE, 1024.5), rate(EVERY, 7)).error is ErrorCode.NONE

    for host in cluster.hosts.values():
        assert host.image.quotas == {ALICE: {RATE: 1024.5}, EVERY: {RATE: 7.0}}


def test_a_removed_quota_leaves_no_key() -> None:
    cluster = Cluster(1)
    before = [kv.key for kv in cluster.store.range("").kvs]
    alter(cluster, rate(ALICE, 1))
    alter(cluster, rate(ALICE, None))

    assert [kv.key for kv in cluster.store.range("").kvs] == before
    assert cluster.hosts[1].image.quotas == {}


def test_an_equal_quota_is_set_again_without_a_change() -> None:
    cluster = Cluster(1)
    alter(cluster, rate(ALICE, 1))
    before = cluster.store.range("").rev

    assert alter(cluster, rate(ALICE, 1)).error is ErrorCode.NONE
    assert cluster.store.range("").rev == before


def test_a_request_with_too_many_entities_is_refused() -> None:
    cluster = Cluster(1)
    many = [rate((("user", f"u{number}"),), 1) for number in range(CHANGES_MAX + 1)]

    assert alter(cluster, *many).error is ErrorCode.POLICY_VIOLATION
    assert image(cluster).quotas == {}


def update(cluster: Cluster, level: int, kind: UpgradeType) -> do.TopicAnswer:
    updates = ((TIDELOG_VERSION, level, kind),)
    answer = cluster.request(on.UpdateFeaturesReceived(cluster.number(), updates))
    assert isinstance(answer, do.TopicAnswer)
    return answer


def test_quotas_need_a_level_at_which_every_broker_enforces_them() -> None:
    cluster = Cluster(1)
    update(cluster, QUOTAS - 1, UpgradeType.SAFE_DOWNGRADE)

    answer = alter(cluster, rate(ALICE, 1))

    assert answer.error is ErrorCode.UNSUPPORTED_VERSION
    assert f"tidelog features upgrade --feature tidelog.version={QUOTAS}" in answer.message
    assert image(cluster).quotas == {}


def test_a_downgrade_is_refused_while_there_are_quotas() -> None:
    cluster = Cluster(1)
    alter(cluster, rate(ALICE, 1), rate(EVERY, 2))

    refused = update(cluster, QUOTAS - 1, UpgradeType.SAFE_DOWNGRADE)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "remove those of 2 entities first" in refused.message

    assert update(cluster, QUOTAS - 1, UpgradeType.UNSAFE_DOWNGRADE).error is ErrorCode.NONE
    assert image(cluster).quotas == {}


def test_the_request_survives_the_way_to_the_controller() -> None:
    call = on.AlterQuotasReceived(7, (rate(ALICE, 0.25), rate(EVERY, None)), True)

    assert decode_call(encode_call(call)) == call


def test_the_copy_of_the_metadata_has_the_quotas() -> None:
    cluster = Cluster(1)
    alter(cluster, rate(ALICE, 1))

    copy = decode_copy(encode_copy(image(cluster)))

    assert copy is not None
    assert copy.quotas is not None
    assert list(copy.quotas) == list(image(cluster).quota_keys)
