"""Every handler returns an encodable response to any well-formed request."""

from typing import Any

import pytest
from api_cluster import CREATE_ACLS, JOIN_GROUP, UNREGISTER_BROKER, ApiCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_structs import fields_of, structs

from tidelog.core.api.guards import GUARDS
from tidelog.core.api.handlers import HANDLERS
from tidelog.core.api_table import OFFERED
from tidelog.core.authorization.acl import Operation, PatternType, Permission, ResourceType
from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER
from tidelog.core.groups.config import GroupConfig
from tidelog.core.principal import USER, Principal
from tidelog.core.wire.codec import REQUEST

USUAL: dict[str, tuple[Any, ...]] = {
    "name": ("orders", "new", "retention.ms", "cleanup.policy"),
    "topic": ("orders",),
    "topic_names": (["orders", "new"],),
    "resource_name": ("orders", "", "1"),
    "resource_type": (2, 4),
    "config_operation": (0, 1, 2, 3),
    "value": ("1", "compact", None),
    "partition_index": (0, 1),
    "partition": (0,),
    "partitions": ([0, 0],),
    "broker_ids": ([1], [2, 1]),
    "replicas": ([1], None),
    "num_partitions": (1, 2, -1),
    "replication_factor": (1, 2, -1),
    "count": (2, 3),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0),
    "offset": (-1, 0),
    "current_leader_epoch": (-1, 0),
    "leader_epoch": (-1, 0),
    "election_type": (0, 1),
    "transactional_id": ("t",),
    "producer_id": (-1,),
    "producer_epoch": (-1,),
    "timeout_ms": (0, 100),
    "group_id": ("group", "other", "third"),
    "groups": (["group", "other"],),
    "groups_names": (["group"],),
    "coordinator_keys": (["group", ""],),
    "key_type": (0,),
    "member_id": ("",),
    "generation_id": (-1, 1),
    "generation_id_or_member_epoch": (-1, 1),
    "protocol_type": ("consumer",),
    "partition_indexes": ([0, 0],),
}
"""Values that get a request further than random ones do."""


def usual(data: st.DataObject, value: Any) -> Any:
    """Return the struct with some values replaced by likely ones."""
    if isinstance(value, list):
        return [usual(data, each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, each in value.items():
        structs_within = isinstance(each, list) and (not each or isinstance(each[0], dict))
        fits = not structs_within and not isinstance(each, float)
        if name in USUAL and fits and data.draw(st.booleans()):
            changed[name] = data.draw(st.sampled_from(USUAL[name]))
        else:
            changed[name] = usual(data, each)
    return changed


TEXTS = {
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
}
ALICE = Principal(USER, "alice")


@pytest.fixture(scope="module")
def cluster() -> ApiCluster:
    at_once = GroupConfig(group_initial_rebalance_delay_ms=0)
    cluster = ApiCluster(brokers=(1, 2), texts=TEXTS, settings={"groups": at_once}).start_all()
    cluster.create("orders")
    cluster.coordinator("group")
    cluster.transaction_coordinator("t")
    cluster.settle()
    return cluster


def any_request(data: Any, api_key: int) -> tuple[dict[str, Any], int]:
    """Return a request and its version."""
    api = OFFERED[api_key]
    version = data.draw(st.integers(api.first, api.last))
    request = usual(data, data.draw(structs(fields_of(api_key, version, REQUEST), version)))
    if api_key == JOIN_GROUP:
        # Who joins waits for the others, but not for as long as any number says.
        request["session_timeout_ms"] = data.draw(st.sampled_from((0, 6000, 10_000)))
        request["rebalance_timeout_ms"] = data.draw(st.sampled_from((-1, 0, 100)))
    if api_key == UNREGISTER_BROKER:
        # The brokers are needed for the next requests.
        request["broker_id"] = data.draw(st.sampled_from((-1, 0, 3, 2**31 - 1)))
    return request, version


@pytest.mark.parametrize("api_key", sorted(HANDLERS), ids=lambda key: OFFERED[key].name)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_request_gets_a_response(cluster: ApiCluster, api_key: int, data: Any) -> None:
    request, version = any_request(data, api_key)
    assert cluster.request(data.draw(st.sampled_from((1, 2))), api_key, request, version)


@pytest.fixture(scope="module")
def authorized() -> ApiCluster:
    """Two brokers with an authoriser: alice may do everything with names that begin with "o" or
    "g", and nothing else."""
    texts = {
        **TEXTS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    at_once = GroupConfig(group_initial_rebalance_delay_ms=0)
    cluster = ApiCluster(
        brokers=(1, 2),
        texts=texts,
        settings={"groups": at_once},
        principal=Principal(USER, "admin"),
    ).start_all()
    cluster.create("orders")
    cluster.coordinator("group")
    cluster.transaction_coordinator("t")
    creations = [
        {
            "resource_type": kind,
            "resource_name": prefix,
            "resource_pattern_type": PatternType.PREFIXED,
            "principal": "User:alice",
            "host": "*",
            "operation": Operation.ALL,
            "permission_type": Permission.ALLOW,
        }
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        for prefix in ("o", "g")
    ]
    cluster.request(1, CREATE_ACLS, {"creations": creations})
    cluster.settle()
    return cluster


@pytest.mark.parametrize("api_key", sorted(GUARDS), ids=lambda key: OFFERED[key].name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_guarded_request_gets_a_response(
    authorized: ApiCluster, api_key: int, data: Any
) -> None:
    request, version = any_request(data, api_key)
    broker = data.draw(st.sampled_from((1, 2)))
    assert authorized.request(broker, api_key, request, version, principal=ALICE)
