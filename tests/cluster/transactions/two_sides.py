"""The same requests to Tidelog and to Apache Kafka, and their answers in a comparable form.

What differs between any two clusters is replaced: producer ids by their order, times, addresses and
error texts by a word. All else must be equal.
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
_SORTED = ("transaction_states", "active_producers", "topics", "coordinators")
_LEFT_OUT = ("throttle_time_ms", "unknown_tagged_fields")


class Identity(NamedTuple):
    """A producer id and its epoch, as a broker gave them."""

    id: int
    epoch: int


class Side:
    """One of the two brokers, and all that it answered."""

    def __init__(self, port: int) -> None:
        self._connection = KafkaConnection("127.0.0.1", port, timeout_s=60)
        self._producers: dict[int, str] = {}
        self.answers: list[tuple[str, Any]] = []

    def close(self) -> None:
        self._connection.close()

    def begin(self) -> None:
        """Forget the answers of another scenario."""
        self.answers, self._producers = [], {}

    # -- requests ---------------------------------------------------------------------------

    def ask(self, key: int, request: Struct, version: int, about: str = "") -> Struct:
        """Send a request and remember its answer."""
        answer = self.quietly(key, request, version)
        label = f"{len(self.answers)}: {api.api_name(key)} {version} {about}".strip()
        self.answers.append((label, self._comparable(answer)))
        return answer

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
        return topic

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
        return Identity(answer["producer_id"], answer["producer_epoch"])

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
        seen = {name: partition[name] for name in (*kept, "aborted_transactions")}
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
            return {
                key: self._comparable(each, key)
                for key, each in value.items()
                if key not in _LEFT_OUT
            }
        if isinstance(value, list):
            found = [self._comparable(each) for each in value]
            return sorted(found, key=str) if name in _SORTED else found
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name == "producer_id" and value >= 0:
            return self._producers.setdefault(value, f"producer {len(self._producers)}")
        if (name in _TIMES and value > 0) or (name in _ADDRESS and value not in (-1, "")):
            return f"a {name}"
        if name == "coordinator_epoch" and value >= 0:
            return "an epoch"
        if name == "error_message" and value not in (None, "", "NONE"):
            return "a text"
        return value


def _of(name: str, producer: Identity) -> Struct:
    return {
        "transactional_id": name,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }
