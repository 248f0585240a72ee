"""One broker of a real Apache Kafka on this machine, to compare answers with."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeAlias

from client_programs import java_tools
from real_cluster import eventually
from two_sides import Side

from tidelog.core.api_table import DESCRIBE_CLUSTER
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.security import ClientSecurity
from tidelog.shell.supervisor.cluster import LocalCluster

Sides: TypeAlias = tuple[Side, Side]

CLUSTER_ID = "dGlkZWxvZy1jb21wYXJlMQ"
START_S = 120.0
ONE_COPY = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
"""Settings for one broker, of Kafka or of Tidelog."""


@contextmanager
def running_sides(settings: Mapping[str, str] | None = None) -> Iterator[Sides]:
    """Start one broker of each, with the same settings; yield both when coordinators are loaded."""
    wanted = {**ONE_COPY, **(settings or {})}
    with running_kafka(wanted) as kafka_port, LocalCluster(brokers=1, settings=wanted) as cluster:
        ours, theirs = Side(cluster.port(1)), Side(kafka_port)
        for side in (ours, theirs):
            side.prepare("warm")
            side.await_coordinators()
        try:
            yield ours, theirs
        finally:
            ours.close()
            theirs.close()


def compare(sides: Sides, scenario: Callable[[Side], object]) -> set[str]:
    """Run a scenario on both; all answers must be equal. Return the errors in the answers."""
    for side in sides:
        side.begin()
        scenario(side)
    ours, theirs = sides
    different = [
        f"{label}\n  Tidelog: {one}\n  Kafka:   {other}"
        for (label, one), (_, other) in zip(ours.answers, theirs.answers, strict=True)
        if one != other
    ]
    assert not different, "\n".join(different)
    return ours.errors


@contextmanager
def running_kafka(
    settings: Mapping[str, str] = ONE_COPY, security: ClientSecurity | None = None
) -> Iterator[int]:
    """Start a broker that is also the controller; yield its port. Skip without Java or jars. With
    `security`, clients connect by TLS, for which the settings have the keys."""
    *java, class_path = java_tools()
    protocol = "PLAINTEXT" if security is None else "SSL"
    folder = Path(mkdtemp(prefix="kafka-compare-"))
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    port, controller = (one.getsockname()[1] for one in held)
    for one in held:
        one.close()
    wanted = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "inter.broker.listener.name": protocol,
        "log.dirs": str(folder / "data"),
        **settings,
    }
    conf = folder / "server.properties"
    conf.write_text("".join(f"{name}={value}\n" for name, value in wanted.items()))
    start = [*java, class_path]
    tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(conf)]
    log_path = folder / "log"
    with log_path.open("wb") as log:
        formatted = subprocess.run([*start, *tool], stdout=log, stderr=log, check=False)
        assert formatted.returncode == 0, log_path.read_text()[-2000:]
        process = subprocess.Popen([*start, "kafka.Kafka", str(conf)], stdout=log, stderr=log)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log_path.read_text()[-2000:]
            with KafkaConnection("127.0.0.1", port, timeout_s=5, security=security) as connection:
                return bool(connection.call(DESCRIBE_CLUSTER, {})["brokers"])

        eventually(is_ready, "Kafka is ready", START_S)
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
