"""CreateAcls and DeleteAcls at the controller: what is stored, and in which order."""

from cluster_driver import Cluster

from tidelog.core.authorization.acl import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.acl_changes import CHANGES_MAX
from tidelog.core.controller.events import UpgradeType
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import ACLS, TIDELOG_VERSION
from tidelog.core.controller.metadata.metadata_copy import decode_copy, encode_copy
from tidelog.core.controller.metadata.metadata_store import Delete, Put
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.controller_calls import decode_call, encode_call

READ = Acl(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
DENIED = READ._replace(principal="User:*", operation=Operation.ALL, permission=Permission.DENY)
GROUPS = READ._replace(resource_type=ResourceType.GROUP, resource_name="g")
EVERY = AclFilter(
    ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
)


def image(cluster: Cluster) -> ClusterImage:
    found = ClusterImage()
    found.load(cluster.store.range(""))
    return found


def stored(cluster: Cluster) -> set[Acl]:
    return set(image(cluster).acls.values())


def create(cluster: Cluster, *acls: Acl) -> do.TopicAnswer:
    answer = cluster.request(on.CreateAclsReceived(cluster.number(), acls))
    assert isinstance(answer, do.TopicAnswer)
    return answer


def delete(cluster: Cluster, *filters: AclFilter) -> tuple[set[Acl], ...]:
    answer = cluster.request(on.DeleteAclsReceived(cluster.number(), filters))
    assert isinstance(answer, do.AclsDeleted), answer
    return tuple(map(set, answer.deleted))


def test_acls_are_stored_and_reach_every_broker() -> None:
    cluster = Cluster(1, 2)

    assert create(cluster, READ, DENIED).error is ErrorCode.NONE

    for host in cluster.hosts.values():
        assert set(host.image.acls.values()) == {READ, DENIED}


def test_an_acl_that_exists_is_created_again_without_a_change() -> None:
    cluster = Cluster(1)
    create(cluster, READ)
    before = cluster.store.range("").rev

    assert create(cluster, READ, READ).error is ErrorCode.NONE

    assert cluster.store.range("").rev == before
    assert stored(cluster) == {READ}


def test_a_filter_deletes_what_it_selects_and_lists_it() -> None:
    cluster = Cluster(1)
    create(cluster, READ, DENIED, GROUPS)
    of_groups = EVERY._replace(resource_type=ResourceType.GROUP)
    nothing = EVERY._replace(host="10.0.0.1")

    assert delete(cluster, of_groups, nothing) == ({GROUPS}, set())
    assert stored(cluster) == {READ, DENIED}
    assert delete(cluster, EVERY, EVERY) == ({READ, DENIED}, {READ, DENIED})
    assert not stored(cluster)
    assert delete(cluster, EVERY) == (set(),)


def many(count: int) -> tuple[Acl, ...]:
    return tuple(READ._replace(resource_name=f"t{number}") for number in range(count))


def test_many_acls_are_written_in_several_transactions_those_that_deny_first() -> None:
    cluster = Cluster(1)
    acls = many(250)

    create(cluster, *acls, DENIED)

    host = cluster.hosts[1]
    sent = [e for e in host.seen if isinstance(e, do.StoreTransaction)]
    written = [[op.value for op in t.ops if isinstance(op, Put) and _is_acl(op)] for t in sent]
    transactions = [values for values in written if values]
    assert stored(cluster) == {*acls, DENIED}
    assert len(transactions) > 2
    assert b"DENY" in transactions[0][0]


def _is_acl(op: Put) -> bool:
    return op.key.startswith("acls/")


def test_acls_that_deny_are_deleted_last() -> None:
    cluster = Cluster(1)
    create(cluster, DENIED, *many(150))
    [denied] = [key for key, acl in image(cluster).acls.items() if acl == DENIED]
    host = cluster.hosts[1]
    host.seen.clear()

    delete(cluster, EVERY)

    sent = [e for e in host.seen if isinstance(e, do.StoreTransaction)]
    deletions = [op.key for t in sent for op in t.ops if isinstance(op, Delete)]
    assert deletions[-1] == denied


def test_requests_with_too_many_changes_are_refused() -> None:
    cluster = Cluster(1)

    assert create(cluster, *many(CHANGES_MAX + 1)).error is ErrorCode.POLICY_VIOLATION
    assert not stored(cluster)


def update(cluster: Cluster, level: int, kind: UpgradeType) -> do.TopicAnswer:
    updates = ((TIDELOG_VERSION, level, kind),)
    answer = cluster.request(on.UpdateFeaturesReceived(cluster.number(), updates))
    assert isinstance(answer, do.TopicAnswer)
    return answer


def test_acls_need_a_level_that_every_broker_obeys_them_at() -> None:
    cluster = Cluster(1)
    update(cluster, ACLS - 1, UpgradeType.SAFE_DOWNGRADE)

    answer = create(cluster, READ)

    assert answer.error is ErrorCode.UNSUPPORTED_VERSION
    assert f"tidelog features upgrade --feature tidelog.version={ACLS}" in answer.message
    assert not stored(cluster)


def test_a_downgrade_is_refused_while_there_are_acls() -> None:
    cluster = Cluster(1)
    create(cluster, READ, DENIED)

    refused = update(cluster, ACLS - 1, UpgradeType.SAFE_DOWNGRADE)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "delete the 2 ACLs first" in refused.message
    assert stored(cluster) == {READ, DENIED}

    assert update(cluster, ACLS - 1, UpgradeType.UNSAFE_DOWNGRADE).error is ErrorCode.NONE
    assert not stored(cluster)


def test_requests_and_responses_survive_the_way_to_the_controller() -> None:
    for call in (
        on.CreateAclsReceived(7, (READ, DENIED)),
        on.DeleteAclsReceived(8, (EVERY, EVERY._replace(resource_name="x"))),
        do.AclsDeleted(((READ,), ())),
    ):
        assert decode_call(encode_call(call)) == call


def test_the_copy_of_the_metadata_has_the_acls() -> None:
    cluster = Cluster(1)
    create(cluster, READ)

    copy = decode_copy(encode_copy(image(cluster)))

    assert copy is not None
    assert copy.acls is not None
    assert list(copy.acls) == list(image(cluster).acls)
