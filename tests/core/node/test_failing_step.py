"""A step in which the disk fails acknowledges nothing, not even earlier requests of the step."""

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.encoder import encode_value
from tidelog.core.storage.disk import DiskError


def produce(cluster: Cluster, acks: int) -> on.RequestReceived:
    records = bytearray(encode_value(b"a"))
    request = Produce(acks, 1000, [ProducePartition(ORDERS, records)])
    return on.RequestReceived("client", 7, request, cluster.now_ms)


@pytest.mark.parametrize("fails", [True, False])
def test_an_acknowledgement_of_the_failing_step_is_not_sent(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    node = cluster.nodes[1]

    def fail() -> None:
        raise DiskError("Input/output error", "leader-epoch-checkpoint")

    if fails:
        monkeypatch.setattr(node._replicas, "write_epochs", fail)
    effects = node.step(produce(cluster, acks=1))
    answers = [effect.response for effect in effects if isinstance(effect, do.Respond)]
    promised = [a for a in answers if a.partitions[0].error is ErrorCode.NONE]  # type: ignore[attr-defined]
    assert bool(promised) is not fails
    assert any(isinstance(effect, do.Halt) for effect in effects) is fails
