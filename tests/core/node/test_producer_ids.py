"""Producer ids: each is assigned once, whatever happens to brokers, controllers and responses."""

from typing import Any

import pytest
from node_cluster import TTL_MS, Cluster

from tidelog.core.controller.effects import ProducerIdsAnswer
from tidelog.core.controller.events import AllocateProducerIdsReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import InitProducerId, InitProducerIdResponse
from tidelog.core.node.serving.producer_ids import WAIT_MAX_MS

LATER = InitProducerIdResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    return cluster


def new_id(cluster: Cluster, broker: int) -> int:
    answer: InitProducerIdResponse = cluster.call(broker, InitProducerId())
    assert answer.error is ErrorCode.NONE
    assert answer.producer_epoch == 0
    return answer.producer_id


def asked(cluster: Cluster) -> int:
    return sum(isinstance(r, AllocateProducerIdsReceived) for _, _, r in cluster.sent)


def another(cluster: Cluster) -> int:
    return min(set(cluster.nodes) - {cluster.controller()})


def test_every_broker_assigns_ids_from_its_own_block(cluster: Cluster) -> None:
    ids = [new_id(cluster, broker) for broker in (1, 2, 3, 1, 2, 3)]
    assert sorted(ids) == [0, 1, 1000, 1001, 2000, 2001]


def test_producers_wait_for_the_first_block(cluster: Cluster) -> None:
    broker = another(cluster)
    waiting = [cluster.ask(broker, InitProducerId()) for _ in range(3)]
    assert not cluster.answers
    cluster.run(100)
    assert [cluster.answers[one].producer_id for one in waiting] == [0, 1, 2]
    assert asked(cluster) == 1


def test_next_block_is_requested_before_the_last_is_used_up(cluster: Cluster) -> None:
    broker = another(cluster)
    first = [new_id(cluster, broker) for _ in range(900)]
    assert asked(cluster) == 2
    cluster.run(100)
    numbers = [cluster.ask(broker, InitProducerId()) for _ in range(1000)]
    rest = [cluster.answers[number].producer_id for number in numbers]
    assert first + rest == list(range(1900))


def test_more_requests_at_once_than_ids_in_a_block(cluster: Cluster) -> None:
    broker = another(cluster)
    waiting = [cluster.ask(broker, InitProducerId()) for _ in range(2500)]
    cluster.run(500)
    assert [cluster.answers[one].producer_id for one in waiting] == list(range(2500))


def test_restart_uses_no_old_ids(cluster: Cluster) -> None:
    broker = another(cluster)
    before = new_id(cluster, broker)
    cluster.crash(broker, proof=True)
    cluster.start(broker)
    assert new_id(cluster, broker) == before + 1000


def test_lost_response_costs_one_block(cluster: Cluster) -> None:
    broker = another(cluster)
    lost: list[ProducerIdsAnswer] = []

    def lose(_sender: int, _asker: int, response: Any) -> Any:
        if isinstance(response, ProducerIdsAnswer) and not lost:
            lost.append(response)
            return None
        return response

    cluster.tamper = lose
    assert new_id(cluster, broker) == 1000
    assert lost == [ProducerIdsAnswer(ErrorCode.NONE, 0, 1000)]


def test_late_response_is_not_used_in_addition(cluster: Cluster) -> None:
    broker, controller = another(cluster), cluster.controller()
    node = cluster.nodes[broker]
    held: list[Any] = []

    def hold(_sender: int, _asker: int, response: Any) -> Any:
        if isinstance(response, ProducerIdsAnswer) and not held:
            held.append(response)
            calls = node._calls._open
            (number,) = [n for n, c in calls.items() if c.answered == node._producer_ids._answered]
            cluster.at(cluster.now_ms + 1700, lambda: late(number, response))
            return None
        return response

    def late(number: int, response: Any) -> None:
        cluster._respond(controller, (broker, node), number, response)

    cluster.tamper = hold
    assert new_id(cluster, broker) == 1000
    cluster.run(3000)
    assert [new_id(cluster, broker) for _ in range(3)] == [1001, 1002, 1003]


def test_a_new_controller_continues_after_the_last_block(cluster: Cluster) -> None:
    broker = another(cluster)
    new_id(cluster, broker)
    cluster.crash(cluster.controller(), proof=True)
    cluster.run_until(
        lambda: any(n.controller.is_active for n in cluster.nodes.values()), 2 * TTL_MS
    )
    third = min(set(cluster.nodes) - {broker})
    assert new_id(cluster, third) == 1000


def test_without_a_controller_producers_wait_and_get_an_error(cluster: Cluster) -> None:
    broker = another(cluster)
    for other in set(cluster.nodes) - {broker}:
        cluster.cut |= {(other, broker), (broker, other)}
    one = cluster.ask(broker, InitProducerId())
    cluster.run(WAIT_MAX_MS - 1)
    assert one not in cluster.answers
    cluster.run(1)
    assert cluster.answers[one] == LATER
    cluster.cut.clear()
    assert new_id(cluster, broker) >= 0


def detach(cluster: Cluster) -> None:
    """Take the store away until the sessions have run out."""
    cluster.store_away = True
    cluster.run_until(lambda: all(n.detached for n in cluster.nodes.values()), 3 * TTL_MS)


def test_a_detached_broker_without_ids_returns_an_error_at_once(cluster: Cluster) -> None:
    detach(cluster)
    for broker in cluster.nodes:
        one = cluster.ask(broker, InitProducerId())
        cluster.run(0)
        assert cluster.answers[one] == LATER
    cluster.store_away = False
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    assert len({new_id(cluster, broker) for broker in cluster.nodes}) == 3


def test_a_detached_broker_assigns_the_ids_that_it_has(cluster: Cluster) -> None:
    broker = another(cluster)
    before = new_id(cluster, broker)
    detach(cluster)
    # At 100 ids left the next block was requested, and not received.
    assert [new_id(cluster, broker) for _ in range(999)] == list(range(before + 1, before + 1000))
    one = cluster.ask(broker, InitProducerId())
    cluster.run(0)
    assert cluster.answers[one] == LATER


def test_unregistered_broker_delays_producer_ids() -> None:
    cluster = Cluster((1,))
    cluster.start()
    one = cluster.ask(1, InitProducerId())
    cluster.run(1000)
    assert cluster.answers[one].producer_id == 0


def test_refusal_of_a_resigned_local_controller_is_retried() -> None:
    cluster = Cluster((1,))
    cluster.start()
    cluster.run_until(lambda: cluster.nodes[1].acting)
    node = cluster.nodes[1]
    node.controller.requests = None
    node.controller.candidacy.token = None
    node.controller.candidacy.session = 0
    one = cluster.ask(1, InitProducerId())
    assert one not in cluster.answers
    node.controller.candidacy.session = cluster._leases[1].session
    cluster.run(2000)
    assert cluster.answers[one].producer_id == 0
