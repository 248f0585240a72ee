"""Apache Kafka's own command-line tools, and through them its Java client, against real brokers.

They need Java 17 or newer, and Kafka's jars: scripts/fetch_kafka.py downloads them once into
the build folder.
"""

import json
import random
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner
from client_programs import TOOL_S, java_tools, run_tool
from real_cluster import eventually

from tidelog.apps.cli.main import cli
from tidelog.core.record.compression import Codec
from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.slow

RECORDS = 40_000
KILLS = 3
TRANSACTION_COLUMNS = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
"""What `kafka-transactions.sh list` prints if there are no transactions."""

Tool: TypeAlias = Callable[..., str]


@pytest.fixture(scope="module")
def java() -> list[str]:
    """The start of the command line of a tool; the class name and the options follow."""
    return java_tools()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "log.segment.bytes": str(1 << 20),
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
    }
    with LocalCluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture
def tool(cluster: LocalCluster) -> Tool:
    """A function that runs a tool until it exits and returns its standard output."""

    return partial(run_tool, cluster.bootstrap)


def test_topics_are_made_changed_and_described(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "tools", "--partitions", "2")
    tool("TopicCommand", "--create", "--topic", "tools", error="tools exists")
    tool("TopicCommand", "--alter", "--topic", "tools", "--partitions", "3")
    described = tool("TopicCommand", "--describe", "--topic", "tools")
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    topic = ("--entity-type", "topics", "--entity-name", "tools")
    tool("ConfigCommand", "--alter", *topic, "--add-config", "retention.ms=7200000")
    assert "retention.ms=7200000" in tool("ConfigCommand", "--describe", *topic)
    tool(
        "ConfigCommand",
        "--alter",
        *topic,
        "--add-config",
        "retention.ms=soon",
        error="whole number",
    )
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    tool("TopicCommand", "--delete", "--topic", "tools")
    assert "tools" not in tool("TopicCommand", "--list").split()


def test_records_are_written_counted_read_and_deleted(tool: Tool, tmp_path: Path) -> None:
    lines = "".join(f"{n}\n" for n in range(500))
    tool("ConsoleProducer", "--topic", "lines", "--compression-codec", "zstd", given=lines)
    partition = ("--topic", "lines", "--partition", "0", "--offset")
    read = tool("consumer.ConsoleConsumer", *partition, "earliest", "--max-messages", "500")
    assert read == lines
    assert tool("GetOffsetShell", "--topic", "lines") == "lines:0:500\n"
    before = tmp_path / "before.json"
    asked = {"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 100}]}
    before.write_text(json.dumps(asked))
    assert "low_watermark: 100" in tool("DeleteRecordsCommand", "--offset-json-file", str(before))
    assert tool("GetOffsetShell", "--topic", "lines", "--time", "-2") == "lines:0:100\n"
    # -3 is the first record with the largest timestamp; its offset is not fixed.
    assert re.fullmatch(
        r"lines:0:\d+\n", tool("GetOffsetShell", "--topic", "lines", "--time", "-3")
    )


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_java_reads_what_we_pack(tool: Tool, cluster: LocalCluster, codec: Codec) -> None:
    """Small batches, and batches that fill several blocks if the codec has blocks."""
    topic = f"packed-{codec.name.lower()}"
    lines = [f"{n} {'ab' * (n % 40)}" for n in range(9000)]
    lines += [f"{n} {random.Random(n).randbytes(600).hex()}" for n in range(400)]
    with Cluster(cluster.bootstrap) as client:
        create_topic(client, topic, 1, 3)
        producer = Producer(client, codec=codec)
        for start, end in ((0, 10), (10, 9000), (9000, 9400)):
            records = [Record(None, line.encode()) for line in lines[start:end]]
            producer.append(topic, 0, records)
    partition = ("--topic", topic, "--partition", "0", "--offset", "earliest")
    read = tool("consumer.ConsoleConsumer", *partition, "--max-messages", str(len(lines)))
    assert read.splitlines() == lines


def test_our_commands_print_what_kafkas_tools_print(tool: Tool, cluster: LocalCluster) -> None:
    tool("TopicCommand", "--create", "--topic", "same", "--partitions", "3")
    tool("TopicCommand", "--create", "--topic", "placed", "--replica-assignment", "1:2,3:1")
    topics = ("--entity-type", "topics", "--entity-name", "same")
    tool("ConfigCommand", "--alter", *topics, "--add-config", "retention.ms=7200000")
    brokers = ("--entity-type", "brokers", "--entity-default")
    tool("ConfigCommand", "--alter", *brokers, "--add-config", "message.max.bytes=2000000")
    one_broker = ("--entity-type", "brokers", "--entity-name", "1")

    def lines(said: str) -> list[str]:
        """Sort lines and configs: Kafka's tool prints a topic's configs in no fixed order."""
        return sorted(re.sub(r"(?<=Configs: ).*", _in_order, line) for line in said.splitlines())

    def ours(*words: str) -> list[str]:
        where = ("--bootstrap-server", cluster.bootstrap, "--format", "kafka")
        found = CliRunner().invoke(cli, [*words, *where])
        assert found.exit_code == 0, found.output
        return lines(found.stdout)

    for name in ("same", "placed"):
        theirs = tool("TopicCommand", "--describe", "--topic", name)
        assert ours("topic", "describe", name) == lines(theirs)
    for words, options in {
        ("topic", "same"): topics,
        ("topic", "same", "--all"): (*topics, "--all"),
        ("brokers",): brokers,
        ("broker", "1"): one_broker,
        ("broker", "1", "--all"): (*one_broker, "--all"),
    }.items():
        theirs = tool("ConfigCommand", "--describe", *options)
        assert ours("config", "describe", *words) == lines(theirs)
    tool("ConfigCommand", "--alter", *brokers, "--delete-config", "message.max.bytes")


def _in_order(configs: re.Match[str]) -> str:
    return " ".join(sorted(re.split(r",(?=[\w.]+=)", configs[0])))


def test_replicas_are_moved(tool: Tool, tmp_path: Path) -> None:
    tool("TopicCommand", "--create", "--topic", "moved", "--replica-assignment", "1:2")
    plan = tmp_path / "plan.json"
    wanted = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3, 1]}]}
    plan.write_text(json.dumps(wanted))
    move = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    assert "Successfully started" in tool(*move, "--execute")
    eventually(lambda: "is completed" in tool(*move, "--verify"), "moved")
    assert "Replicas: 3,1" in tool("TopicCommand", "--describe", "--topic", "moved")


def test_a_move_is_rolled_back_by_the_plan_that_the_tool_printed(
    tool: Tool, tmp_path: Path
) -> None:
    """The printed plan names the log directory of each replica."""
    tool("TopicCommand", "--create", "--topic", "rolled", "--replica-assignment", "1:2")
    plan = tmp_path / "plan.json"
    wanted = {"version": 1, "partitions": [{"topic": "rolled", "partition": 0, "replicas": [2, 3]}]}
    plan.write_text(json.dumps(wanted))
    move = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file")
    printed = tool(*move, str(plan), "--execute")
    eventually(lambda: "is completed" in tool(*move, str(plan), "--verify"), "moved")
    [before] = [line for line in printed.splitlines() if line.startswith("{")]
    assert "broker-1" in before
    back = tmp_path / "back.json"
    back.write_text(before)
    assert "Successfully started" in tool(*move, str(back), "--execute")
    eventually(lambda: "is completed" in tool(*move, str(back), "--verify"), "moved back")
    assert "Replicas: 1,2" in tool("TopicCommand", "--describe", "--topic", "rolled")
    logs = tool("LogDirsCommand", "--describe", "--topic-list", "rolled")
    assert "rolled-0" in logs


EVERY_CLIENT = ("--entity-type", "clients", "--entity-default")


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (("--entity-type", "clients", "--entity-name", "c"), "producer_byte_rate"),
        (EVERY_CLIENT, "consumer_byte_rate"),
        (("--entity-type", "users", "--entity-name", "u"), "controller_mutation_rate"),
        (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "connection_creation_rate"),
        (
            (*("--entity-type", "users", "--entity-name", "v"), *EVERY_CLIENT),
            "request_percentage",
        ),
    ],
)
def test_client_quotas_are_set_described_and_removed(
    tool: Tool, entity: tuple[str, ...], key: str
) -> None:
    assert key not in tool("ConfigCommand", "--describe", *entity)
    tool("ConfigCommand", "--alter", *entity, "--add-config", f"{key}=1000")

    def is_described(text: str) -> bool:
        return (f"{key}=1000" in tool("ConfigCommand", "--describe", *entity)) == bool(text)

    eventually(lambda: is_described("set"), "quota described")
    tool("ConfigCommand", "--alter", *entity, "--delete-config", key)
    eventually(lambda: is_described(""), "quota removed")


def test_tools_report_missing_features_at_once(tool: Tool) -> None:
    tool("AclCommand", "--list", error="has no access control")
    assert "SCRAM" not in tool("ConfigCommand", "--describe", "--entity-type", "users")
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    tool("ConfigCommand", "--describe", *loggers, error="not loggers")
    assert tool("TransactionsCommand", "list").split() == TRANSACTION_COLUMNS
    tool("MetadataQuorumCommand", "describe", "--status", error="does not support DESCRIBE_QUORUM")
    assert tool("ClientMetricsCommand", "--list").strip() == ""


def test_a_restarted_group_continues_at_its_committed_offsets(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "shared", "--partitions", "3")
    tool("ConsoleProducer", "--topic", "shared", given="".join(f"{n}\n" for n in range(100)))
    read = ("consumer.ConsoleConsumer", "--topic", "shared", "--group", "java", "--from-beginning")
    first = tool(*read, "--max-messages", "100").split()
    assert sorted(map(int, first)) == list(range(100))
    tool("ConsoleProducer", "--topic", "shared", given="new\n")
    assert tool(*read, "--max-messages", "1") == "new\n"
    assert "java" in tool("GroupsCommand", "--list")
    group = ("consumer.group.ConsumerGroupCommand", "--group", "java")
    described = tool(*group, "--describe")
    lags = [line.split()[5] for line in described.splitlines() if line.startswith("java")]
    assert lags == ["0", "0", "0"], described
    assert "Empty" in tool(*group, "--describe", "--state")
    offsets = ("consumer.ConsoleConsumer", "--topic", "__consumer_offsets", "--from-beginning")
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    kept = tool(*offsets, "--formatter", formatter, "--timeout-ms", "5000")
    seen = [json.loads(one) for one in kept.replace("}{", "}\n{").splitlines()]
    latest = {
        one["key"]["data"]["partition"]: one["value"]["data"]["offset"]
        for one in seen
        if one["key"]["data"]["group"] == "java"
    }
    assert sum(latest.values()) == 101, kept
    reset = ("--reset-offsets", "--to-earliest", "--topic", "shared", "--execute")
    tool(*group, *reset)
    again = tool(*read, "--max-messages", "101").split()
    assert sorted(again) == sorted([*first, "new"])
    tool(*group, "--delete-offsets", "--topic", "shared")
    tool(*group, "--delete")
    assert "java" not in tool("GroupsCommand", "--list").split()


def test_the_verifiable_consumer_commits_what_it_read(tool: Tool) -> None:
    tool("ConsoleProducer", "--topic", "verified", given="".join(f"{n}\n" for n in range(100)))
    cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    said = tool(
        *("VerifiableConsumer", "--topic", "verified", "--group-id", "verifiers"),
        *("--max-messages", "100", "--reset-policy", "earliest"),
        *("--assignment-strategy", cooperative),
    )
    events = [json.loads(line) for line in said.splitlines()]
    assert sum(one["count"] for one in events if one["name"] == "records_consumed") == 100
    commits = [one for one in events if one["name"] == "offsets_committed"]
    assert commits[-1]["success"]
    assert commits[-1]["offsets"] == [{"topic": "verified", "partition": 0, "offset": 100}]


def test_performance_is_measured(tool: Tool) -> None:
    written = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    assert "2000 records sent" in tool("ProducerPerformance", "--topic", "measured", *written)
    read = tool("ConsumerPerformance", "--topic", "measured", "--num-records", "2000")
    assert read.splitlines()[-1].split(", ")[4] == "2000"
    sizes = ("--num-records", "20", "--producer-acks", "all", "--record-size", "10")
    assert "Avg latency" in tool("EndToEndLatency", "--topic", "measured-too", *sizes)


def test_brokers_and_their_folders_are_described(tool: Tool, cluster: LocalCluster) -> None:
    versions = tool("BrokerApiVersionsCommand")
    assert versions.count("JoinGroup(11): 0 to 9 [usable: 9]") == len(cluster.ids)
    assert versions.count("DescribeQuorum(55): UNSUPPORTED") == len(cluster.ids)
    folders = json.loads(tool("LogDirsCommand", "--describe").splitlines()[-1])
    assert [one["broker"] for one in folders["brokers"]] == cluster.ids
    assert [one["logDirs"][0]["logDir"] for one in folders["brokers"]] == [
        cluster.log_dir(broker) for broker in cluster.ids
    ]


def test_tools_report_apis_that_are_not_offered(tool: Tool) -> None:
    tool("AclCommand", "--list", error="has no access control")
    tool("MetadataQuorumCommand", "describe", "--status", error="not support DESCRIBE_QUORUM")
    assert tool("TransactionsCommand", "list").split() == TRANSACTION_COLUMNS


def test_features_are_described_and_changed(tool: Tool) -> None:
    def described() -> dict[str, list[str]]:
        """Each feature's lowest and highest level, and its finalised level, as printed."""
        lines = [line.split() for line in tool("FeatureCommand", "describe").splitlines()]
        return {words[1]: words[3:8:2] for words in lines}

    assert described()["metadata.version"] == ["4.3-IV0"] * 3
    assert described()["tidelog.version"] == ["1", "5", "5"]
    lower = ("downgrade", "--feature", "tidelog.version=1")
    assert "can be downgraded to 1" in tool("FeatureCommand", *lower, "--dry-run")
    assert described()["tidelog.version"] == ["1", "5", "5"]
    assert "tidelog.version was downgraded to 1" in tool("FeatureCommand", *lower)
    assert described()["tidelog.version"] == ["1", "5", "1"]
    upgrade = ("upgrade", "--feature")
    tool("FeatureCommand", *upgrade, "tidelog.version=6", error="only supports versions 1-5")
    raised = tool("FeatureCommand", *upgrade, "tidelog.version=5")
    assert "tidelog.version was upgraded to 5" in raised
    disable = ("disable", "--feature", "tidelog.version")
    tool("FeatureCommand", *disable, error="Invalid update version 0 for feature tidelog.version")


def test_performance_of_transactions_is_measured(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "paid")
    written = ("--num-records", "2000", "--record-size", "9", "--throughput", "-1")
    often = ("--transactional-id", "t", "--transaction-duration-ms", "20")
    assert "2000 records sent" in tool("ProducerPerformance", "--topic", "paid", *written, *often)
    partition = ("--topic", "paid", "--partition", "0", "--offset", "earliest")
    committed = ("--isolation-level", "read_committed", "--max-messages", "2000")
    assert len(tool("consumer.ConsoleConsumer", *partition, *committed).splitlines()) == 2000


def test_records_of_a_java_producer_survive_the_leader(
    java: list[str], tool: Tool, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Idempotence is on, as by default: no record is lost, duplicated or out of order."""
    tool("TopicCommand", "--create", "--topic", "kept")
    options = tmp_path / "producer.properties"
    options.write_text(f"retries={2**31 - 1}\nenable.idempotence=true\n")
    writer = "org.apache.kafka.tools.VerifiableProducer"
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", "kept", "--acks", "-1")
    how = ("--max-messages", str(RECORDS), "--throughput", "4000")
    errors = tmp_path / "errors"
    with (
        errors.open("w") as said,
        subprocess.Popen(
            [*java, writer, *where, *how, "--command-config", str(options)],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as producer,
    ):
        patience = threading.Timer(TOOL_S, producer.kill)
        patience.start()
        try:
            acknowledged, kills = _kill_leaders(producer, cluster)
        finally:
            patience.cancel()
            producer.kill()
    assert kills >= KILLS
    assert len(acknowledged) == RECORDS, errors.read_text()
    reading = ("--topic", "kept", "--partition", "0", "--offset", "earliest")
    count = ("--max-messages", str(RECORDS))
    read = tool("consumer.ConsoleConsumer", *reading, *count).split()
    assert read == [str(n) for n in range(RECORDS)]
    assert all(int(read[offset]) == value for value, offset in acknowledged.items())
    assert tool("GetOffsetShell", "--topic", "kept") == f"kept:0:{RECORDS}\n"


def _kill_leaders(
    producer: subprocess.Popen[str], cluster: LocalCluster
) -> tuple[dict[int, int], int]:
    """Kill leaders while the producer runs.

    Return the acknowledged records (value -> offset) and the number of kills.
    """
    acknowledged: dict[int, int] = {}
    kills = 0
    assert producer.stdout is not None
    dead = 0
    for line in producer.stdout:
        said = json.loads(line)
        if said["name"] != "producer_send_success":
            assert said["name"] != "producer_send_error", line
            continue
        acknowledged[int(said["value"])] = said["offset"]
        done = len(acknowledged) * (KILLS + 1) * 2 // RECORDS
        if done % 2 and not dead:
            alive = next(broker for broker in cluster.ids if cluster.is_running(broker))
            dead = cluster.metadata(alive).topics["kept"][0][0]
            if dead in cluster.ids:
                cluster.kill(dead)
                kills += 1
            else:
                dead = 0
        elif not done % 2 and dead:
            cluster.start_broker(dead)
            dead = 0
    return acknowledged, kills


def test_our_files_are_read(tool: Tool, cluster: LocalCluster) -> None:
    """Several segments with their indexes and snapshots, after the broker has stopped."""
    written = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    tool("ProducerPerformance", "--topic", "dumped", *written)
    stopped = 1
    assert cluster.stop(stopped) == 0
    folder = Path(cluster.log_dir(stopped)) / "dumped-0"
    files = {kind: sorted(folder.glob(f"*.{kind}")) for kind in ("log", "snapshot")}
    assert len(files["log"]) > 2
    logs = tool("DumpLogSegments", "--files", ",".join(map(str, files["log"])))
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) .* isvalid: (\w+)", logs)
    assert {valid for _, _, valid in batches} == {"true"}
    ends = [int(last) + 1 for _, last, _ in batches]
    assert [int(first) for first, _, _ in batches] == [0, *ends[:-1]]
    assert ends[-1] == 20000
    for kind in ("index", "timeindex"):
        # The newest segment may be too short for an entry.
        indexes = [index for index in sorted(folder.glob(f"*.{kind}")) if index.stat().st_size]
        assert len(indexes) > 2
        listed = ("--files", ",".join(map(str, indexes)))
        sane = tool("DumpLogSegments", "--index-sanity-check", *listed)
        assert sane.count("passed sanity check") == len(indexes)
        mismatches = tool("DumpLogSegments", "--verify-index-only", *listed).splitlines()
        assert mismatches == [f"Dumping {index}" for index in indexes]
    snapshots = tool("DumpLogSegments", "--files", ",".join(map(str, files["snapshot"])))
    assert snapshots.count("producerId: ") == len(files["snapshot"]) > 1
    cluster.start_broker(stopped)
