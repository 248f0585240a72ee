"""The first fault of a run: kill a broker before any topic or group exists.

Invariant: when `make_while_down` returns, the topic of the run exists and the broker runs again.
"""

import time
from collections.abc import Callable

from tidelog.apps.verify.checker.findings import Findings
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import registered_brokers
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import Committed, commit_offsets
from tidelog.shell.supervisor.cluster import LocalCluster

FENCED_S = 30.0
POLL_S = 0.05


def make_while_down(
    local: LocalCluster,
    cluster: Cluster,
    topic: str,
    create_topic: Callable[[], None],
    findings: Findings,
) -> None:
    """Create the topic and commit the cluster's first offset while a broker is down."""
    victim = max(local.ids)
    local.kill(victim)
    try:
        _await_fenced(cluster, victim)
        create_topic()
        commit_offsets(cluster, topic, {TopicPartition(topic, 0): Committed(0)})
    except ClientError as error:
        findings.add("not created", f"with broker {victim} down: {error}")
    finally:
        local.start_broker(victim)
    if topic not in cluster.refresh().topics:
        create_topic()


def _await_fenced(cluster: Cluster, broker: int) -> None:
    """Wait until the broker is fenced. Raises ClientError if that takes too long."""
    until = time.monotonic() + FENCED_S
    while True:
        known = registered_brokers(cluster).get(broker)
        if known is None:
            raise ClientError(f"broker {broker} is not registered any more")
        if known.fenced:
            return
        if time.monotonic() > until:
            raise ClientError(f"broker {broker} is not fenced after {FENCED_S:g} s")
        time.sleep(POLL_S)
