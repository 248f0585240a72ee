"""The transaction coordinator of a broker, beside the leaders that ask it."""

from node_cluster import ORDERS, Cluster
from txn_cluster import ID, batch, read, request

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.messages import (
    EndTransaction,
    InitTransactionalId,
    InitTransactionalIdResponse,
)
from tidelog.core.transactions.transaction import ProducerIdentity

OK = ErrorCode.NONE
COORDINATOR = 3


def cluster_with_coordinator() -> tuple[Cluster, ProducerIdentity]:
    """Broker 3 coordinates; the topic `orders` does not exist yet."""
    cluster = Cluster()
    cluster.start()
    name = TRANSACTIONS_TOPIC
    cluster.create_topic(name, (COORDINATOR,), b"s" * 16, cleanup_policy="compact")
    found: list[InitTransactionalIdResponse] = []

    def initialised() -> bool:
        found.append(cluster.call(COORDINATOR, InitTransactionalId(ID, 60_000)))
        return found[-1].error_code is OK

    cluster.run_until(initialised)
    return cluster, ProducerIdentity(found[-1].producer_id, found[-1].producer_epoch)


def test_a_coordinator_adds_no_partition_that_its_metadata_lacks() -> None:
    """It would take the partition for a deleted one, and end the transaction without a marker."""
    cluster, producer = cluster_with_coordinator()
    late = cluster._watching.pop(COORDINATOR)
    cluster.create_topic(replicas=(1, 2))
    leader = cluster.leader()
    assert leader is not None

    def produced() -> ErrorCode:
        sent = request(batch(0, b"v", of=producer.producer_id, epoch=producer.epoch))
        error: ErrorCode = cluster.call(leader, sent).partitions[0].error
        return error

    assert produced() is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster._watching[COORDINATOR] = late
    cluster._notify()
    cluster.run_until(lambda: ORDERS.topic in cluster.nodes[COORDINATOR].image.topics)
    assert produced() is OK
    end = EndTransaction(ID, producer, True, 2)
    assert cluster.call(COORDINATOR, end).error_code is OK
    cluster.run_until(lambda: not cluster.replica(leader).log.producers.open_transactions)
    cluster.run_until(lambda: read(cluster, leader).last_stable_offset == 2)
