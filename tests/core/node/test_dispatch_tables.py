"""Each event and each request type has exactly one handler; an unknown request is an error."""

from typing import get_args

import pytest
from node_cluster import Cluster

from tidelog.core.controller import events as controller_on
from tidelog.core.coordinator.lookup import FindCoordinator
from tidelog.core.groups import messages as groups
from tidelog.core.node import events as on
from tidelog.core.node.messages import BrokerRequest, Forwarded
from tidelog.core.replication import effects as replica_do


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    return cluster


def test_every_event_has_a_handler(cluster: Cluster) -> None:
    in_take = {on.RequestReceived, on.ResponseReceived}
    assert set(cluster.nodes[1]._handlers) | in_take == set(get_args(on.Event))


def test_every_request_has_a_service(cluster: Cluster) -> None:
    requests = {
        *get_args(BrokerRequest),
        *get_args(controller_on.Request),
        *get_args(groups.Request),
        FindCoordinator,
        Forwarded,
    }
    services = cluster.nodes[1]._services
    assert all(callable(services[request]) for request in requests)
    assert set(services) == requests


def test_an_unknown_request_is_an_error(cluster: Cluster) -> None:
    event = on.RequestReceived("client", 1, "no request", cluster.now_ms)
    with pytest.raises(TypeError, match="no service handles requests of type str"):
        cluster.nodes[1].take(event)


def test_every_effect_of_a_replica_is_carried_out(cluster: Cluster) -> None:
    assert set(cluster.nodes[1]._replicas._carry_out) == set(get_args(replica_do.Effect))
