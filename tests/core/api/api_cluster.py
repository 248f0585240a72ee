"""Brokers that receive requests as bytes: frame, codec, handler and node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import GeneratorType
from typing import Any

from node_cluster import Cluster

from tidelog.core.api.access_control import Access, broker_authorizer
from tidelog.core.api.context import Broker, BrokerContext, DepartedBrokers, Struct
from tidelog.core.api.guards import guarded
from tidelog.core.api.handlers import handler_of
from tidelog.core.api_table import OFFERED
from tidelog.core.errors import ErrorCode
from tidelog.core.principal import ANONYMOUS, Principal
from tidelog.core.settings.broker_settings import settings_of
from tidelog.core.types import BrokerId
from tidelog.core.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.core.wire.frames import parse_request_header

LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
UNREGISTER_BROKER = 64
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69
LIST_CONFIG_RESOURCES = 74
DESCRIBE_TOPIC_PARTITIONS = 75

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NO_TOPIC_ID = bytes(16)
FIRST_PORT = 9090
CLIENT_HOST = "10.1.2.3"


@dataclass
class ApiCluster(Cluster):
    """A cluster of nodes with the handlers in front of each."""

    texts: dict[str, str] = field(default_factory=dict)
    """Settings of every broker, as in their files."""
    made_ids: int = 0
    departed: DepartedBrokers = field(default_factory=DepartedBrokers)
    disk_space: Callable[[str], tuple[int, int]] = lambda _: (-1, -1)
    principal: Principal = ANONYMOUS
    """Who sends requests, if the test does not say it."""

    def start_all(self) -> "ApiCluster":
        for broker in self.brokers:
            self.start(broker, port=FIRST_PORT + broker)
        self.run_until(lambda: all(self.nodes[broker].acting for broker in self.brokers))
        return self

    def request(
        self,
        broker: BrokerId,
        api_key: int,
        request: Struct,
        version: int | None = None,
        listener: str = "CLIENT",
        software: str = "",
        principal: Principal | None = None,
    ) -> Struct:
        """Send a request as bytes; `software` is the client library."""
        version = OFFERED[api_key].last if version is None else version
        frame = memoryview(encode_request(api_key, version, 7, "test", request))[4:]
        header = parse_request_header(frame)
        decoded = decode_request(api_key, version, frame, header.position)
        context = BrokerContext(
            self._broker(broker),
            version,
            "test",
            listener,
            self.now_ms,
            client_host=CLIENT_HOST,
            client_software=software,
            principal=principal or self.principal,
        )
        handling = self._handling(context, api_key, decoded)
        response = (
            self._drive(broker, handling) if isinstance(handling, GeneratorType) else handling
        )
        assert isinstance(response, dict)
        correlation_id, answer = decode_response(
            api_key, version, encode_response(api_key, version, 7, response)[4:]
        )
        assert correlation_id == 7
        return answer

    def _handling(self, context: BrokerContext, api_key: int, request: Struct) -> Any:
        """Run the handler, behind its guard if the settings name an authoriser."""
        authorizer = context.broker.authorizer
        if authorizer is None:
            return handler_of(api_key)(context, request)
        name = OFFERED[api_key].name
        access = Access(authorizer, context.principal, context.client_host, name)
        serve = partial(handler_of(api_key), context)
        return guarded(api_key, access, context, request, serve)

    def _drive(self, broker: BrokerId, handling: Any) -> Any:
        answers = None
        while True:
            try:
                requests = handling.send(answers)
            except StopIteration as done:
                return done.value
            asked = [self.ask(broker, request) for request in requests]
            self.run_until(lambda asked=asked: all(n in self.answers for n in asked))  # type: ignore[misc]
            answers = [self.answers.pop(number) for number in asked]

    def _broker(self, broker: BrokerId) -> Broker:
        settings = settings_of({"node.id": str(broker), **self.texts})
        node, departed = self.nodes[broker], self.departed
        return Broker(
            node,
            settings,
            CLUSTER_ID,
            self._new_topic_id,
            lambda: 0,
            departed,
            self.disk_space,
            broker_authorizer(settings, node.image, node.journal.note, lambda: self.now_ms),
        )

    def _new_topic_id(self) -> bytes:
        self.made_ids += 1
        return self.made_ids.to_bytes(16, "big")

    def settle(self) -> None:
        """Wait until every broker has applied all changes of the store."""
        self.run_until(
            lambda: all(node.image.revision == self.store.revision for node in self.nodes.values())
        )

    def coordinator(self, group_id: str, broker: BrokerId | None = None) -> BrokerId:
        """The coordinator of a group, once it is ready; the request goes to `broker`."""
        asked = {"groups": [group_id]}
        for _ in range(200):
            told = self.request(broker or self.controller(), FIND_COORDINATOR, {"key": group_id}, 2)
            if told["error_code"] == ErrorCode.NONE and told["node_id"] in self.nodes:
                node_id = int(told["node_id"])
                [group] = self.request(node_id, DESCRIBE_GROUPS, asked, 5)["groups"]
                if group["error_code"] == ErrorCode.NONE:
                    return node_id
            self.run(50)
        raise AssertionError(f"nobody coordinates {group_id}")

    def transaction_coordinator(self, name: str, broker: BrokerId | None = None) -> BrokerId:
        """The coordinator of a transactional id, once it is ready."""
        asked = {"key": name, "key_type": 1}
        for _ in range(200):
            told = self.request(broker or self.controller(), FIND_COORDINATOR, asked, 2)
            if told["error_code"] == ErrorCode.NONE and told["node_id"] in self.nodes:
                node_id = int(told["node_id"])
                described = {"transactional_ids": [name]}
                answer = self.request(node_id, DESCRIBE_TRANSACTIONS, described, 0)
                known = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
                if answer["transaction_states"][0]["error_code"] in known:
                    return node_id
            self.run(50)
        raise AssertionError(f"nobody coordinates {name}")

    # -- what many tests begin with --------------------------------------------------------

    def create(
        self, name: str, partitions: int = 1, replication_factor: int = 1, **topic: Any
    ) -> Struct:
        """Create a topic through the controller; return when all brokers know it."""
        asked = creatable(name, partitions, replication_factor, **topic)
        [result] = self.create_topics([asked])["topics"]
        assert result["error_code"] == ErrorCode.NONE, result
        self.settle()
        self.run(100)
        return dict(result)

    def create_topics(self, topics: list[Struct], **request: Any) -> Struct:
        asked = {"topics": topics, "timeout_ms": 1000, "validate_only": False, **request}
        return self.request(self.controller(), CREATE_TOPICS, asked)


def creatable(name: str, partitions: int = 1, replication_factor: int = 1, **topic: Any) -> Struct:
    """One topic of a CreateTopics request; `configs` as a dict, `assignments` as lists."""
    configs = topic.get("configs", {})
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in topic.get("assignments", {}).items()
        ],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }


def errors(results: list[Struct], key: str = "name") -> dict[Any, ErrorCode]:
    """Return the error code of each result."""
    return {result[key]: ErrorCode(result["error_code"]) for result in results}
