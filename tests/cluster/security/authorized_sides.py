"""One broker of Tidelog and one of Apache Kafka with the authoriser on.

Clients have principals by their certificates. Responses are brought into a comparable form.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from broker_process import STOP_S, listening_event
from certificates import authority, certificate
from real_cluster import eventually
from real_kafka import ONE_COPY, running_kafka

from tidelog.core import api_table as api
from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.client_errors import CannotConnect, Disconnected
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.security import ClientSecurity, read_security

HOST = "127.0.0.1"
TIMEOUT_MS = 60_000
ADMIN, ALLOWED, HALF, STRANGER = "admin", "allowed", "half", "stranger"
CLIENTS = (ADMIN, ALLOWED, HALF, STRANGER)
AUTHORIZED = {
    **ONE_COPY,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:CN=broker;User:CN=admin",
}
LEFT_OUT = {
    "throttle_time_ms",
    "unknown_tagged_fields",
    "error_message",
    "brokers",
    "cluster_id",
    "controller_id",
    "leader_epoch",
    "timestamp",
    "log_append_time_ms",
    "producer_id",
    "producer_epoch",
    "member_id",
    "leader",
    "host",
    "port",
    "node_id",
    "configs",
    "log_dir",
    "eligible_leader_replicas",
    "last_known_elr",
    "config_resources",
    "documentation",
}
"""Fields whose values differ between any two clusters, or are compared by other tests."""


class Certificates:
    """The keys of a broker and of the clients, signed by one authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority(folder)
        self._broker = certificate(folder, "broker", "/CN=broker")
        self._stores = {name: certificate(folder, name, f"/CN={name}") for name in CLIENTS}

    @property
    def broker_settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "ssl.client.auth": "required",
        }

    def properties(self, name: str) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._stores[name]),
        }

    def security(self, name: str) -> ClientSecurity:
        found = read_security(self.properties(name))
        assert found is not None
        return found


@contextmanager
def running_tidelog(folder: Path, settings: Mapping[str, str]) -> Iterator[int]:
    """Start one broker whose clients connect by TLS; yield its port."""
    sets = {
        "node.id": "1",
        "listeners": f"SSL://{HOST}:0",
        "tidelog.log.format": "json",
        **settings,
    }
    options = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "tidelog", "broker", "--data", str(folder / "data")]
    log = folder / "tidelog.log"
    with ExitStack() as stack:
        file = stack.enter_context(log.open("wb"))
        process = subprocess.Popen([*command, *options], stderr=file, env=dict(os.environ))
        stack.callback(process.wait, STOP_S)
        stack.callback(process.terminate)
        yield eventually(partial(_port, log), "it listens")


def _port(log: Path) -> int | None:
    event = listening_event(log)
    if event is None:
        return None
    [address] = event["listeners"]
    return int(str(address).rpartition(":")[2])


class AuthorizedSide:
    """One of the two brokers, with a connection of each client."""

    def __init__(self, port: int, keys: Certificates) -> None:
        self._port = port
        self._keys = keys
        self._connections: dict[str, KafkaConnection] = {}
        self.topic_ids: dict[str, bytes] = {}

    def call(self, who: str, key: int, request: Struct, version: int | None = None) -> Any:
        """Send a request as a client; the response, or None if the connection was closed."""
        connection = self._connection(who)
        try:
            return connection.call(key, request, version)
        except (CannotConnect, Disconnected):
            connection.close()
            del self._connections[who]
            return None

    def send(self, who: str, key: int, request: Struct, version: int) -> None:
        """Send a request that has no response."""
        self._connection(who).send(key, request, version)

    def _connection(self, who: str) -> KafkaConnection:
        connection = self._connections.get(who)
        if connection is None:
            security = self._keys.security(who)
            connection = KafkaConnection(HOST, self._port, timeout_s=60, security=security)
            connection.call(api.API_VERSIONS, {}, 0)
            self._connections[who] = connection
        return connection

    def admin(self, key: int, request: Struct, version: int | None = None) -> Any:
        return self.call(ADMIN, key, request, version)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def create(self, *topics: str) -> None:
        """Create topics; wait until the broker leads and serves them."""
        made = [
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name in topics
        ]
        request = {"topics": made, "timeout_ms": TIMEOUT_MS, "validate_only": False}
        answer = self.admin(api.CREATE_TOPICS, request)
        for topic in answer["topics"]:
            assert topic["error_code"] == ErrorCode.NONE, topic
            self.topic_ids[topic["name"]] = topic["topic_id"]
        wanted = [{"partition_index": 0, "timestamp": -1}]
        asked = [{"name": name, "partitions": wanted} for name in topics]
        offsets = {"replica_id": -1, "isolation_level": 0, "topics": asked, "timeout_ms": 1000}

        def are_served() -> bool:
            found = self.admin(api.LIST_OFFSETS, offsets)["topics"]
            errors = {p["error_code"] for topic in found for p in topic["partitions"]}
            return errors == {ErrorCode.NONE}

        eventually(are_served, f"leaders of {topics}")

    def await_coordinators(self, groups: list[str], names: list[str]) -> None:
        """Wait until these groups and transactional ids have coordinators that are loaded."""
        for kind, keys in ((0, groups), (1, names)):
            for key in keys:
                eventually(partial(self._is_coordinated, key, kind), f"coordinator of {key}")

    def _is_coordinated(self, key: str, kind: int) -> bool:
        found = self.admin(api.FIND_COORDINATOR, {"key": key, "key_type": kind}, 3)
        if found["error_code"] != ErrorCode.NONE:
            return False
        if kind == 0:
            offsets = {"group_id": key, "topics": None}
            return bool(self.admin(api.OFFSET_FETCH, offsets, 5)["error_code"] == ErrorCode.NONE)
        states = self.admin(api.DESCRIBE_TRANSACTIONS, {"transactional_ids": [key]}, 0)
        known = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return states["transaction_states"][0]["error_code"] in known

    def comparable(self, value: Any) -> Any:
        """Replace what differs between any two clusters."""
        if isinstance(value, dict):
            return {
                name: self.comparable(each)
                for name, each in sorted(value.items())
                if name not in LEFT_OUT
            }
        if isinstance(value, list | tuple):
            return sorted((self.comparable(each) for each in value), key=repr)
        if isinstance(value, bytes | memoryview) and len(value) == 16:
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            found = bytes(value)
            return "no id" if not any(found) else f"id of {names.get(found, 'a new topic')}"
        return int(value) if isinstance(value, int) else value


@contextmanager
def running_authorized(
    folder: Path, more: Mapping[str, str] | None = None
) -> Iterator[tuple[AuthorizedSide, AuthorizedSide]]:
    """Start one broker of each, with the same settings; yield Tidelog's side and Kafka's."""
    keys = Certificates(folder)
    settings = {**AUTHORIZED, **keys.broker_settings, **(more or {})}
    admin = keys.security(ADMIN)
    with (
        running_kafka(settings, admin) as kafka_port,
        running_tidelog(folder, settings) as our_port,
    ):
        sides = AuthorizedSide(our_port, keys), AuthorizedSide(kafka_port, keys)
        try:
            for side in sides:
                eventually(partial(_is_ready, side), "the broker is unfenced")
            yield sides
        finally:
            for side in sides:
                side.close()


def _is_ready(side: AuthorizedSide) -> bool:
    return bool(side.admin(api.DESCRIBE_CLUSTER, {})["brokers"])
