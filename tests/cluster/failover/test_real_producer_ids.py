"""New idempotent producers while etcd does not respond for longer than the brokers' sessions."""

import subprocess
import sys
import time

import pytest
from real_cluster import PATIENCE_S, QUICK_SESSIONS, eventually, make_topic, read_values
from real_etcd import running_etcd

from tidelog.core.api_table import INIT_PRODUCER_ID
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.supervisor.cluster import LocalCluster

REQUEST = {"transactional_id": None, "transaction_timeout_ms": 60_000}
PROMPT_S = 2.0
"""A broker that can't get ids answers after three seconds, unless it is detached."""


def answer(cluster: LocalCluster, broker: int) -> tuple[int, float]:
    """Return the error of a request for a producer id, and the seconds until the response."""
    with KafkaConnection("localhost", cluster.port(broker), timeout_s=PATIENCE_S) as client:
        assert client.versions
        began_s = time.monotonic()
        error = client.call(INIT_PRODUCER_ID, REQUEST)["error_code"]
        return error, time.monotonic() - began_s


def refuses_at_once(cluster: LocalCluster, broker: int) -> bool:
    error, took_s = answer(cluster, broker)
    assert error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return took_s < PROMPT_S


def detached(cluster: LocalCluster) -> bool:
    return all(cluster.describe_state(broker, "kept")["detached"] for broker in cluster.ids)


@pytest.mark.ci
def test_a_producer_without_an_id_gets_a_retriable_error_at_once_and_says_so() -> None:
    with (
        running_etcd(1) as etcd,
        LocalCluster(store=etcd.url("ids"), settings=QUICK_SESSIONS) as cluster,
    ):
        make_topic(cluster.bootstrap, "kept")
        (node,) = etcd.nodes
        node.freeze()
        try:
            eventually(lambda: detached(cluster), "all brokers are detached")
            for broker in cluster.ids:
                # A broker that waits for the store is never prompt; a busy one only sometimes.
                eventually(
                    lambda at=broker: refuses_at_once(cluster, at),  # type: ignore[misc]
                    "a prompt refusal",
                )
            command = [sys.executable, "-m", "tidelog", "produce", "kept", "-b", cluster.bootstrap]
            command += ["--delivery-timeout", str(PATIENCE_S)]
            pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
            with subprocess.Popen(command, **pipes, text=True) as produce:  # type: ignore[call-overload]
                produce.stdin.write("later\n")
                produce.stdin.close()
                waiting = produce.stderr.readline()
                assert "waiting: request for a producer id failed" in waiting
                assert "COORDINATOR_LOAD_IN_PROGRESS" in waiting
                node.thaw()
                assert produce.wait(PATIENCE_S) == 0
        finally:
            node.thaw()
        assert read_values(cluster.bootstrap, "kept") == [b"later"]
