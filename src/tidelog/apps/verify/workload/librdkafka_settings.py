"""How librdkafka is set up: its defaults, but for how soon it notices that a broker hangs.

With its defaults it waits a minute for a broker that does not answer, and a test of a few
minutes would show the client's patience, not the cluster's.
"""

from typing import Any

from tidelog.apps.verify.workload.orders import Task

FLUSH_S = 60.0
QUEUE_MAX = 20_000
"""Records that may wait in a producer: what is lost with a worker is bounded."""


def shared(task: Task, name: str) -> dict[str, Any]:
    """Settings of every client."""
    return {
        "bootstrap.servers": task.bootstrap,
        "client.id": name,
        "socket.timeout.ms": 3000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 1000,
        "log_level": 0,
    }


def producer(task: Task, name: str) -> dict[str, Any]:
    """Settings of a producer. Nothing times out within a run: a record is written or waits."""
    return shared(task, name) | {
        "acks": task.acks,
        "enable.idempotence": task.idempotence,
        "linger.ms": 5,
        "request.timeout.ms": 2500,
        "message.timeout.ms": 300_000,
        "retry.backoff.max.ms": 500,
        "queue.buffering.max.messages": QUEUE_MAX,
    }


def consumer(task: Task, name: str) -> dict[str, Any]:
    """Settings of a consumer: it commits nothing, and an offset that is gone is an error."""
    return shared(task, name) | {
        "group.id": f"{task.topic}-{name}",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
    }
