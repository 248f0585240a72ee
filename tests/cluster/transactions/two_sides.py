"""The same requests to Tidelog and to Apache Kafka, and their answers in a comparable form.

What differs between any two clusters is replaced: producer ids by their order, times and addresses
by a word. Texts of errors are left out. All else must be equal.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from real_cluster import eventually

from tidelog.core import api_table as api
from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.client_errors import CannotConnect
from tidelog.shell.client.connection import KafkaConnection

GROUP, TRANSACTION = 0, 1
NEWEST_INIT = 5
TIMEOUT_MS = 60_000
PASSING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_TIMES = ("transaction_start_time_ms", "last_timestamp", "log_append_time_ms", "timestamp")
_ADDRESS = ("node_id", "host", "port", "leader_id")
_SORTED = (
    "transaction_states",
    "active_producers",
    "topics",
    "coordinators",
    "partitions",
    "results_by_partition",
)
"""Lists that Kafka sends in the order of a hash table."""
_KNOWN_ERRORS = frozenset(map(int, ErrorCode))
_LEFT_OUT = ("throttle_time_ms", "unknown_tagged_fields", "error_message")


class Identity(NamedTuple):
    """A producer id and its epoch, as a broker gave them."""

    id: int
    epoch: int


def older(producer: Identity) -> Identity:
    return producer._replace(epoch=producer.epoch - 1)


def newer(producer: Identity) -> Identity:
    return producer._replace(epoch=producer.epoch + 1)


def stranger(producer: Identity) -> Identity:
    return producer._replace(id=producer.id + 1_000_000)


class Side:
    """One of the two brokers, and all that it answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = self._connect()
        self._producers: dict[int, str] = {}
        self.answers: list[tuple[str, Any]] = []
        self.errors: set[str] = set()

    def _connect(self) -> KafkaConnection:
        return KafkaConnection("127.0.0.1", self._port, timeout_s=60)

    def close(self) -> None:
        self._connection.close()

    def begin(self) -> None:
        """Forget the answers of another scenario."""
        self.answers, self._producers, self.errors = [], {}, set()

    # -- requests ---------------------------------------------------------------------------

    def ask(self, key: int, request: Struct, version: int, about: str = "") -> Struct:
        """Send a request and remember its answer."""
        label = f"{len(self.answers)}: {api.api_name(key)} {version} {about}".strip()
        try:
            answer = self.quietly(key, request, version)
        except CannotConnect:
            self.answers.append((label, "the connection was closed"))
            self._connection = self._connect()
            return {}
        self.answers.append((label, self._comparable(answer)))
        return answer

    def offered(self) -> dict[int, tuple[int, int]]:
        """Return the offered versions of each API."""
        answer = self.quietly(api.API_VERSIONS, {}, 2)
        return {
            each["api_key"]: (each["min_version"], each["max_version"])
            for each in answer["api_keys"]
        }

    def quietly(self, key: int, request: Struct, version: int) -> Struct:
        assert self._connection.version(key, version) == version, "the broker offers this version"
        return self._connection.call(key, request, version)

    def prepare(self, topic: str, partitions: int = 2) -> str:
        """Create a topic; wait until the broker leads it."""
        made = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        made |= {"assignments": [], "configs": []}
        request = {"topics": [made], "timeout_ms": TIMEOUT_MS, "validate_only": False}
        self.quietly(api.CREATE_TOPICS, request, 5)
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

        def has_leaders() -> bool:
            [found] = self.quietly(api.METADATA, asked, 5)["topics"]
            leaders = [each["leader_id"] for each in found["partitions"]]
            return len(leaders) == partitions and all(leader >= 0 for leader in leaders)

        eventually(has_leaders, f"leaders of {topic}")
        self._await_served(topic, partitions)
        return topic

    def _await_served(self, topic: str, partitions: int) -> None:
        """Wait until the leaders know it: Kafka's Metadata names them a moment before."""
        wanted = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
        topics = [{"name": topic, "partitions": wanted}]
        request = {"replica_id": -1, "isolation_level": 0, "topics": topics}

        def are_served() -> bool:
            [found] = self.quietly(api.LIST_OFFSETS, request, 7)["topics"]
            return all(each["error_code"] == ErrorCode.NONE for each in found["partitions"])

        eventually(are_served, f"partitions of {topic}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; wait until the broker does not know it."""
        self.quietly(api.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": TIMEOUT_MS}, 5)
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

        def is_gone() -> bool:
            [found] = self.quietly(api.METADATA, asked, 5)["topics"]
            return bool(found["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        eventually(is_gone, f"{topic} is deleted")

    def join(self, group: str) -> tuple[str, int]:
        """Join a group as its only member; return the member's id and the generation."""
        request = {
            "group_id": group,
            "session_timeout_ms": TIMEOUT_MS,
            "rebalance_timeout_ms": TIMEOUT_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        request["member_id"] = self.quietly(api.JOIN_GROUP, request, 5)["member_id"]
        joined = self.quietly(api.JOIN_GROUP, request, 5)
        assert joined["error_code"] == ErrorCode.NONE
        member = {key: joined[key] for key in ("member_id", "generation_id")}
        shares = [{"member_id": joined["member_id"], "assignment": b""}]
        synced = self.quietly(
            api.SYNC_GROUP, {"group_id": group, **member, "assignments": shares}, 3
        )
        assert synced["error_code"] == ErrorCode.NONE
        return joined["member_id"], joined["generation_id"]

    def await_coordinators(self) -> None:
        """Wait until transactional ids and groups have a coordinator that is loaded."""
        for number in range(16):
            request = {"transactional_id": f"warm-{number}", "transaction_timeout_ms": TIMEOUT_MS}
            offsets = {"group_id": f"warm-{number}", "topics": None}
            for kind in (TRANSACTION, GROUP):
                found = {"key": f"warm-{number}", "key_type": kind}
                self._until_no_error(api.FIND_COORDINATOR, found, 3)
            self._until_no_error(api.INIT_PRODUCER_ID, request, 2)
            self._until_no_error(api.OFFSET_FETCH, offsets, 5)

    def _until_no_error(self, key: int, request: Struct, version: int) -> None:
        def look() -> bool:
            error: int = self.quietly(key, request, version)["error_code"]
            assert error in (ErrorCode.NONE, *PASSING), error
            return error == ErrorCode.NONE

        eventually(look, api.api_name(key))

    def init(
        self,
        name: str | None,
        known: Identity | None = None,
        *,
        version: int = NEWEST_INIT,
        timeout_ms: int = TIMEOUT_MS,
        about: str = "",
    ) -> Identity:
        request = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
        if known is not None:
            request |= {"producer_id": known.id, "producer_epoch": known.epoch}
        answer = self.ask(api.INIT_PRODUCER_ID, request, version, about)
        return Identity(answer.get("producer_id", -1), answer.get("producer_epoch", -1))

    def add(
        self,
        name: str,
        producer: Identity,
        *topics: tuple[str, Iterable[int]],
        version: int = 3,
        verify_only: bool = False,
        about: str = "",
    ) -> None:
        listed = [{"name": topic, "partitions": list(parts)} for topic, parts in topics]
        fields = {
            "transactional_id": name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "topics": listed,
        }
        if version >= 4:
            request: Struct = {"transactions": [{**fields, "verify_only": verify_only}]}
        else:
            request = {f"v3_and_below_{field}": value for field, value in fields.items()}
        self.ask(api.ADD_PARTITIONS_TO_TXN, request, version, about)

    def add_offsets(
        self, name: str, producer: Identity, group: str, version: int = 3, about: str = ""
    ) -> None:
        request = {**_of(name, producer), "group_id": group}
        self.ask(api.ADD_OFFSETS_TO_TXN, request, version, about)

    def commit_offsets(
        self,
        name: str,
        producer: Identity,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = 3,
        about: str = "",
        **member: Any,
    ) -> None:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [partition]}]
        request = {**_of(name, producer), "group_id": group, "member_id": "", "topics": topics}
        self.ask(api.TXN_OFFSET_COMMIT, request | member, version, about)

    def offsets(self, group: str, topic: str, *, stable: bool, about: str = "") -> None:
        topics = [{"name": topic, "partition_indexes": [0]}]
        request = {"group_id": group, "topics": topics, "require_stable": stable}
        self.ask(api.OFFSET_FETCH, request, 7, about)

    def end(
        self,
        name: str,
        producer: Identity,
        *,
        committed: bool,
        version: int = 4,
        about: str = "",
    ) -> Identity:
        request = {**_of(name, producer), "committed": committed}
        answer = self.ask(api.END_TXN, request, version, about)
        self.settle(name)
        return Identity(answer.get("producer_id", -1), answer.get("producer_epoch", -1))

    def settle(self, name: str) -> None:
        """Wait until no markers are being written; the answers do not count."""

        def is_settled() -> bool:
            [found] = self.quietly(api.DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]}, 0)[
                "transaction_states"
            ]
            return not str(found["transaction_state"]).startswith("Prepare")

        eventually(is_settled, f"{name} is settled")

    def describe(self, *names: str) -> None:
        self.ask(api.DESCRIBE_TRANSACTIONS, {"transactional_ids": list(names)}, 0)

    def produce(
        self,
        topic: str,
        producer: Identity,
        sequence: int,
        *,
        name: str | None,
        version: int = 11,
        partition: int = 0,
        transactional: bool = True,
        count: int = 1,
        about: str = "",
    ) -> None:
        records = [Record(None, b"v", 1_700_000_000_000)] * count
        made = Producer(producer.id, producer.epoch, sequence)
        batch = encode_batch(
            records, attributes=TRANSACTIONAL if transactional else 0, producer=made
        )
        self.send_batch(
            topic, bytes(batch), name=name, version=version, partition=partition, about=about
        )

    def send_batch(
        self,
        topic: str,
        batch: bytes,
        *,
        name: str | None,
        version: int,
        partition: int,
        about: str,
    ) -> None:
        written = {"index": partition, "records": batch}
        topics = [{"name": topic, "partition_data": [written]}]
        request = {"transactional_id": name, "acks": -1, "timeout_ms": TIMEOUT_MS}
        self.ask(api.PRODUCE, {**request, "topic_data": topics}, version, about)

    def stable_offset(self, topic: str, partition: int = 0, about: str = "") -> None:
        wanted = {"partition_index": partition, "timestamp": -1}
        topics = [{"name": topic, "partitions": [wanted]}]
        for isolation in (0, 1):
            request = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
            self.ask(api.LIST_OFFSETS, request, 7, f"{about} isolation {isolation}")

    def list_offsets(self, topic: str, timestamp: int, isolation: int, version: int) -> None:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
        request = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
        self.ask(api.LIST_OFFSETS, request, version, f"{timestamp} isolation {isolation}")

    def fetch(self, topic: str, offset: int = 0, *, isolation: int = 1, version: int = 12) -> None:
        """Fetch, and remember all but the records themselves."""
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        request = {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": isolation,
            "topics": [{"topic": topic, "partitions": [wanted]}],
        }
        answer = self.quietly(api.FETCH, request, version)
        [partition] = answer["responses"][0]["partitions"]
        kept = ("error_code", "high_watermark", "last_stable_offset", "log_start_offset")
        seen = {name: partition[name] for name in kept if name in partition}
        # Clients read null and an empty list alike.
        seen["aborted_transactions"] = partition["aborted_transactions"] or []
        seen["bytes"] = len(partition["records"] or b"")
        self.answers.append((f"{len(self.answers)}: Fetch {version}", self._comparable(seen)))

    def producers(self, topic: str, partitions: Sequence[int] = (0,), about: str = "") -> None:
        request = {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}
        self.ask(api.DESCRIBE_PRODUCERS, request, 0, about)

    def list_transactions(self, version: int, prefix: str, **filters: Any) -> None:
        """List transactions, and remember those whose id starts with the prefix."""
        request = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = self.quietly(api.LIST_TRANSACTIONS, request, version)
        answer["transaction_states"] = [
            each
            for each in answer["transaction_states"]
            if each["transactional_id"].startswith(prefix)
        ]
        label = f"{len(self.answers)}: ListTransactions {version} {filters}"
        self.answers.append((label, self._comparable(answer)))

    # -- comparison -------------------------------------------------------------------------

    def _comparable(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            left_out: tuple[str, ...] = _LEFT_OUT
            if value.get("error_code") == ErrorCode.INVALID_RECORD:
                # Kafka has it if the log itself refused the batch.
                left_out = (*_LEFT_OUT, "log_start_offset")
            return {
                key: self._comparable(each, key)
                for key, each in value.items()
                if key not in left_out
            }
        if isinstance(value, list):
            found = [self._comparable(each) for each in value]
            return sorted(found, key=str) if name in _SORTED else found
        if name.endswith("error_code"):
            error = ErrorCode(value).name if value in _KNOWN_ERRORS else str(value)
            self.errors.add(error)
            return error
        if name == "producer_id" and value >= 0:
            return self._producers.setdefault(value, f"producer {len(self._producers)}")
        if (name in _TIMES and value > 0) or (name in _ADDRESS and value not in (-1, "")):
            return f"a {name}"
        if name == "coordinator_epoch" and value >= 0:
            return "an epoch"
        return value


def _of(name: str, producer: Identity) -> Struct:
    return {
        "transactional_id": name,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }
