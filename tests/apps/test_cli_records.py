"""`tidelog produce` and `tidelog consume` on a real cluster, compared with librdkafka."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS
from real_cluster import make_topic as make_named_topic

from tidelog.apps.cli.main import cli
from tidelog.shell.client.partitioner import murmur2, partition_of_key
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120
NAMES = count()
BEGAN_MS = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def running() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=LONG_SESSIONS) as one:
        yield one


@pytest.fixture(scope="module")
def bootstrap(running: LocalCluster) -> str:
    return running.bootstrap


def make_topic(bootstrap: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    return make_named_topic(bootstrap, f"topic-{next(NAMES)}", partitions, 3, configs)


def run(bootstrap: str, *words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, [*words, "--bootstrap", bootstrap], input=stdin)


def done(bootstrap: str, *words: str, stdin: bytes = b"") -> bytes:
    found = run(bootstrap, *words, stdin=stdin)
    assert found.exit_code == 0, found.output
    assert found.stderr == ""
    return found.stdout_bytes


def produce(bootstrap: str, topic: str, text: bytes, *words: str) -> dict[str, Any]:
    told = done(bootstrap, "produce", topic, *words, "--format", "json", stdin=text)
    document: dict[str, Any] = json.loads(told)
    return document


def librdkafka_produce(bootstrap: str, topic: str, **extra: Any) -> None:
    settings = {"bootstrap.servers": bootstrap}
    if "compression.type" in extra:
        settings["compression.type"] = extra.pop("compression.type")
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, **extra)
    assert producer.flush(PATIENCE_S) == 0


def librdkafka_read(bootstrap: str, topic: str, partitions: int = 1) -> list[Any]:
    """Read all messages with librdkafka, partition by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found = []
    try:
        for partition in range(partitions):
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
            deadline = time.monotonic() + PATIENCE_S
            while True:
                assert time.monotonic() < deadline
                message = consumer.poll(1)
                if message is None:
                    continue
                failed = message.error()
                if failed is None:
                    found.append(message)
                elif failed.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    break
                else:
                    assert failed.retriable(), failed
    finally:
        consumer.close()
    return found


# -- what we produce, librdkafka reads --------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_we_produce(bootstrap: str, codec: str) -> None:
    topic = make_topic(bootstrap)
    text = b"a:1\nb:zwei\nc:\nno key\n"
    told = produce(
        bootstrap, topic, text, "-K", ":", "-Z", "-z", codec, "-H", "h=1", "-H", "h=2", "-H", "n",
        "--timestamp", str(BEGAN_MS),
    )  # fmt: skip
    assert (told["records"], told["error"]) == (4, None)
    assert told["partitions"] == [
        {"partition": 0, "records": 4, "first_offset": 0, "last_offset": 3}
    ]
    found = librdkafka_read(bootstrap, topic)
    pairs = [(message.key(), message.value()) for message in found]
    assert pairs == [(b"a", b"1"), (b"b", b"zwei"), (b"c", None), (None, b"no key")]
    assert found[0].headers() == [("h", b"1"), ("h", b"2"), ("n", None)]
    assert found[3].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, BEGAN_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_librdkafka_produces(bootstrap: str, codec: str) -> None:
    topic = make_topic(bootstrap)
    extra: dict[str, Any] = {"compression.type": codec}
    librdkafka_produce(
        bootstrap, topic, key=b"k", value=b"v" * 3000, headers=[("a", b"1"), ("b", None)],
        timestamp=BEGAN_MS, **extra,
    )  # fmt: skip
    librdkafka_produce(bootstrap, topic, key=b"\xff\x00", value=None, **extra)
    first, second = map(json.loads, done(bootstrap, "consume", topic, "-e", "-J").splitlines())
    assert (first["key"], first["payload"], first["ts"]) == ("k", "v" * 3000, BEGAN_MS)
    assert first["headers"] == ["a", "1", "b", None]
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 0, 0)
    assert (first["tstype"], first["broker"] in (1, 2, 3)) == ("create", True)
    assert second["payload"] is None
    assert base64.b64decode(second["key_base64"]) == b"\xff\x00"
    assert "key" not in second


# Known from Kafka's own tests of its hash.
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", HASHES, ids=repr)
def test_key_hash_equals_the_java_clients(key: bytes) -> None:
    assert murmur2(key) == HASHES[key] % 2**32


def test_keys_go_to_the_same_partition_as_with_librdkafkas_murmur2(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 7)
    keys = [b"key-%d" % number for number in range(50)]
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
    )
    for key in keys:
        producer.produce(topic, key=key, value=b"theirs")
    assert producer.flush(PATIENCE_S) == 0
    produce(bootstrap, topic, b"".join(key + b"=ours\n" for key in keys), "-K", "=")
    places: dict[bytes, set[int]] = {}
    values = []
    for line in done(bootstrap, "consume", topic, "-e", "-f", "%k %p %s\n").splitlines():
        key, partition, value = line.split()
        places.setdefault(key, set()).add(int(partition))
        values.append(value)
    assert sorted(set(values)) == [b"ours", b"theirs"]
    assert places == {key: {partition_of_key(key, 7)} for key in keys}


def test_records_without_a_key_use_sticky_partitions(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 3)
    assert len(produce(bootstrap, topic, b"x\n" * 100)["partitions"]) == 1
    line = b"y" * 1000 + b"\n"
    assert len(produce(bootstrap, topic, line * 3000)["partitions"]) >= 2


# -- forms of input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text", "wanted"),
    [
        ((), b"one\ntwo", [(None, b"one"), (None, b"two")]),
        (("-k", "K"), b"one\n", [(b"K", b"one")]),
        (("-D", r"\x00"), b"one\ntwo\x00three\x00", [(None, b"one\ntwo"), (None, b"three")]),
        (("-K", "=>"), b"a=>b=>c\n", [(b"a", b"b=>c")]),
        ((), b"\n", [(None, b"")]),
        (("-Z",), b"\n", [(None, None)]),
        (("-f", r"%k %v\n"), b"a b c\nd e\n", [(b"a", b"b c"), (b"d", b"e")]),
        (("-f", r"%k{hex}|%s{base64};"), b"6162|Y2Q=;6566|;", [(b"ab", b"cd"), (b"ef", b"")]),
        (("-f", r"<%s>\n"), b"<a>\n<b>\n", [(None, b"a"), (None, b"b")]),
        ((), b"\xff\xfe\n", [(None, b"\xff\xfe")]),
    ],
)
def test_input_formats(
    bootstrap: str, words: tuple[str, ...], text: bytes, wanted: list[tuple[Any, Any]]
) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, text, *words)
    found = [(message.key(), message.value()) for message in librdkafka_read(bootstrap, topic)]
    assert found == wanted


def test_several_input_files(bootstrap: str, tmp_path: Path) -> None:
    topic = make_topic(bootstrap)
    (tmp_path / "a").write_bytes(b"1\n2")
    (tmp_path / "b").write_bytes(b"3\n")
    told = done(bootstrap, "produce", topic, str(tmp_path / "a"), str(tmp_path / "b"))
    assert told.decode() == f"3 records written to {topic}: partition 0 at offsets 0 to 2\n"
    assert done(bootstrap, "consume", topic, "-e") == b"1\n2\n3\n"


def test_partition_timestamp_and_headers_from_the_input(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    produce(bootstrap, topic, b"a\n", "-p", "3")
    produce(bootstrap, topic, b"2 1700000000007 x=1,y=2 b\n", "-f", r"%p %T %h %s\n")
    found = done(bootstrap, "consume", topic, "-e", "-p", "2-3", "-f", r"%p %s %h\n")
    assert sorted(found.splitlines()) == [b"2 b x=1,y=2", b"3 a "]
    assert done(bootstrap, "consume", topic, "-e", "-p", "2", "-f", "%T") == b"1700000000007"


def test_topic_is_copied_with_all_record_fields(bootstrap: str) -> None:
    first, second = make_topic(bootstrap), make_topic(bootstrap)
    librdkafka_produce(
        bootstrap, first, key=b"\xfe", value=b"\xff", headers=[("a", b"\xff"), ("b", None)],
        timestamp=BEGAN_MS,
    )  # fmt: skip
    librdkafka_produce(bootstrap, first, key="ü", value=None)
    lines = done(bootstrap, "consume", first, "-e", "-J")
    produce(bootstrap, second, lines, "-J")
    one, two = librdkafka_read(bootstrap, first), librdkafka_read(bootstrap, second)
    for mine, copy in zip(one, two, strict=True):
        assert (mine.key(), mine.value(), mine.headers(), mine.timestamp()) == (
            copy.key(), copy.value(), copy.headers(), copy.timestamp()
        )  # fmt: skip


def test_tee_prints_written_records(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    found = run(bootstrap, "produce", topic, "-T", stdin=b"a\nb\n")
    assert (found.exit_code, found.stdout_bytes) == (0, b"a\nb\n")
    assert "2 records written" in found.stderr


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, acks: str) -> None:
    topic = make_topic(bootstrap)
    told = produce(bootstrap, topic, b"a\nb\n", "--acks", acks)
    (partition,) = told["partitions"]
    assert partition["last_offset"] == (None if acks == "0" else 1)
    assert done(bootstrap, "consume", topic, "-n", "2") == b"a\nb\n"


def test_batches_are_halved_until_the_topic_accepts_them(bootstrap: str) -> None:
    topic = make_topic(bootstrap, configs={"max.message.bytes": "2000"})
    lines = b"".join(b"%d\n" % number for number in range(2000))
    assert produce(bootstrap, topic, lines)["records"] == 2000
    assert done(bootstrap, "consume", topic, "-e") == lines
    found = run(bootstrap, "produce", topic, stdin=b"x" * 3000)
    assert found.exit_code == 1
    assert "MESSAGE_TOO_LARGE" in found.stderr
    assert "0 records were written, 1 were not" in found.stderr


def test_topic_is_created_only_on_request(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    found = run(bootstrap, "produce", topic + "x", stdin=b"a\n")
    assert found.exit_code == 2
    assert f"did you mean {topic}" in found.stderr
    name = f"made-{next(NAMES)}"
    assert b"1 record written" in done(bootstrap, "produce", name, "--create", stdin=b"a\n")


# -- offsets ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbered(bootstrap: str) -> str:
    """A topic of one partition with values 0 to 19, one second apart."""
    topic = make_topic(bootstrap)
    lines = b"".join(b"%d %d\n" % (BEGAN_MS + 1000 * n, n) for n in range(20))
    produce(bootstrap, topic, lines, "-f", r"%T %s\n")
    return topic


@pytest.mark.parametrize(
    ("offsets", "wanted"),
    [
        (("-o", "beginning", "-e"), range(20)),
        (("-e",), range(20)),
        (("-o", "end", "-e"), range(0)),
        (("-o", "17", "-e"), range(17, 20)),
        (("-o", "-3", "-e"), range(17, 20)),
        (("-o", "-300", "-e"), range(20)),
        (("-o", "5:8"), range(5, 8)),
        (("-o", "5", "-n", "2"), range(5, 7)),
        (("-o", "5", "-c", "2"), range(5, 7)),
        (("-o", f"@{BEGAN_MS + 15_500}", "-e"), range(16, 20)),
        (("-o", f"@{BEGAN_MS + 1000}:{BEGAN_MS + 3000}"), range(1, 3)),
        (("-o", f"s@{BEGAN_MS + 1000}", "-o", f"e@{BEGAN_MS + 3000}"), range(1, 3)),
        (("-o", "@2023-11-14T22:13:25Z:2023-11-14T22:13:27"), range(5, 7)),
        (("-o", "@2023-11-14T23:13:25+01:00", "-n", "1"), range(5, 6)),
        (("-o", "@2099-01-01", "-e"), range(0)),
    ],
    ids=str,
)
def test_start_and_end_offsets(
    bootstrap: str, numbered: str, offsets: tuple[str, ...], wanted: range
) -> None:
    found = done(bootstrap, "consume", numbered, *offsets)
    assert found == b"".join(b"%d\n" % number for number in wanted)


def test_offset_beyond_the_log_end_is_reported_and_adjusted(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, b"a\nb\nc\n")
    process = start(bootstrap, "consume", topic, "-o", "500", "-n", "1")
    assert process.stderr is not None
    told = f"the log of {topic}-0 ends at offset 3, before 500; continuing at offset 3"
    assert process.stderr.readline().decode() == f"tidelog: {told}\n"
    produce(bootstrap, topic, b"d\n")
    assert end(process)[0] == b"d\n"
    delete_records(bootstrap, topic, 2)
    found = run(bootstrap, "consume", topic, "-o", "0", "-e")
    assert (found.exit_code, found.stdout) == (0, "c\nd\n")
    begins = f"the log of {topic}-0 begins at offset 2, after offset 0; continuing at offset 2"
    assert found.stderr == f"tidelog: {begins}\n"


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    asked = client.delete_records([confluent_kafka.TopicPartition(topic, 0, before)])
    for future in asked.values():
        future.result(PATIENCE_S)


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (r"%t %p %o %k %s %T %h%%\n", "{topic} 0 0 K V 1700000000000 a=1,b=2%\n"),
        (r"%K %S %V\t%v", "1 1 1\tV"),
        (r"%e %i %H\x41", "0 0 2A"),
        (r"%k{hex} %s{base64}", "4b Vg=="),
        (r"%R", "\x00\x00\x00\x01"),
    ],
)
def test_format_strings(bootstrap: str, template: str, wanted: str) -> None:
    topic = make_topic(bootstrap)
    line = b"K V 1700000000000 a=1,b=2\n"
    produce(bootstrap, topic, line, "-f", r"%k %s %T %h\n")
    found = done(bootstrap, "consume", topic, "-e", "-f", template)
    assert found.decode() == wanted.replace("{topic}", topic)


def test_nulls_and_delimiters(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, b"a:\nb\n", "-K", ":", "-Z")
    assert done(bootstrap, "consume", topic, "-e", "-f", r"%k=%s %K %S\n") == b"a= 1 -1\n=b -1 1\n"
    assert done(bootstrap, "consume", topic, "-e", "-Z", "-K", "=") == b"a=NULL\nNULL=b\n"
    assert done(bootstrap, "consume", topic, "-e", "-D", r"%\0") == b"%\0b%\0"
    found = done(bootstrap, "consume", topic, "-e", "-O").decode()
    assert found == f"{topic}/0@0\t\n{topic}/0@1\tb\n"


def test_several_topics_and_a_regex(bootstrap: str) -> None:
    stem = f"many-{next(NAMES)}"
    for name in ("a", "b"):
        done(bootstrap, "produce", f"{stem}-{name}", "--create", stdin=name.encode())
    both = done(bootstrap, "consume", f"{stem}-a", f"{stem}-b", "-e").split()
    assert sorted(both) == [b"a", b"b"]
    assert sorted(done(bootstrap, "consume", "-r", f"^{stem}-[ab]$", "-e").split()) == sorted(both)
    nothing = run(bootstrap, "consume", "-r", "^nothing-at-all$", "-e")
    assert nothing.exit_code == 2
    assert "there is no topic that matches ^nothing-at-all$" in nothing.stderr


def test_read_committed_works_without_transactions(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, b"a\n")
    assert done(bootstrap, "consume", topic, "-e", "--isolation", "read_committed") == b"a\n"


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("consume", "t", "-o", "soon"), "'soon' is not an offset"),
        (("consume", "t", "-o", "@soon"), "'soon' is not a time"),
        (("consume", "t", "-o", "1", "-o", "2"), "start or end offset given twice"),
        (("consume", "t", "-o", "stored"), "-o stored requires --group"),
        (("consume", "t", "-f", "%q"), "%q is unknown"),
        (("consume", "t", "-f", "%"), "single %"),
        (("consume", "t", "-f", r"\q"), r"\q is unknown"),
        (("consume", "t", "-f", "%o{hex}"), "%o can't be encoded as hex"),
        (("consume", "t", "-J", "-f", "%s"), "-J can't be combined with -f"),
        (("consume", "t", "-f", "%s", "-K", ":"), "-f can't be combined with -K"),
        (("consume", "t", "-e", "--follow"), "--follow and -e can't be combined"),
        (("consume", "t", "-p", "x"), "'x' is not a partition"),
        (("consume", "-r", "("), "unterminated"),
        (("consume", "t", "-g", "g", "-p", "0"), "-p can't be combined with --group"),
        (("consume", "t", "-g", "g", "-o", "5"), "-o must be beginning, end or stored"),
        (("produce", "t", "-K", ""), "-K is empty"),
        (("produce", "t", "-J", "-K", ":"), "-J, -f and -K can't be combined"),
        (("produce", "t", "-f", "%k%s"), "a delimiter between them is missing"),
        (("produce", "t", "-f", "%e"), "is not a valid input format"),
        (("produce", "t", "nowhere.txt"), "file 'nowhere.txt' does not exist"),
        (("produce", "t", "--timestamp", "soon"), "'soon' is not a time"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_invalid_arguments_are_one_line(words: tuple[str, ...], message: str) -> None:
    found = CliRunner().invoke(cli, list(words))
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_missing_topic_can_be_created_or_gets_a_suggestion(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    nowhere = run(bootstrap, "produce", "zzz", stdin=b"a\n")
    assert nowhere.exit_code == 2
    assert nowhere.stderr == (
        "tidelog: there is no topic 'zzz' in the cluster; add --create to create it\n"
    )
    misspelt = run(bootstrap, "produce", topic + "x", stdin=b"a\n")
    assert f"did you mean {topic}" in misspelt.stderr
    assert misspelt.stderr.endswith("? add --create to create it\n")
    assert "--create" not in run(bootstrap, "consume", "zzz", "-e").stderr


def test_input_that_does_not_fit_is_named(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    for words, text, message in [
        (("-f", r"%k %v\n"), b"a b\nab\n", "input record 2: b'ab' does not match the format"),
        (("-f", r"%p %v\n"), b"x b\n", "b'x' is not a valid number for %p"),
        (("-J",), b'{"payload": "a"}\n[]\n', "input record 2: not a JSON object"),
        (("-J",), b'{"headers": ["a"]}\n', "alternating names and values"),
        (("-f", "%s{hex}\\n"), b"xy\n", "b'xy' is not hex"),
    ]:
        found = run(bootstrap, "produce", topic, *words, stdin=text)
        assert found.exit_code == 1
        assert message in found.stderr
        assert found.stderr.count("\n") == 1


def test_missing_partitions_are_named(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    for words in (("produce", topic, "-p", "9"), ("consume", topic, "-p", "9", "-e")):
        found = run(bootstrap, *words, stdin=b"a\n")
        assert found.exit_code == 2
        assert f"there is no partition 9 of topic '{topic}'" in found.stderr


# -- as a process -----------------------------------------------------------------------------


def start(bootstrap: str, *words: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def end(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    try:
        return process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_cleanly_when_interrupted(bootstrap: str, number: int) -> None:
    topic = make_topic(bootstrap)
    process = start(bootstrap, "consume", topic)
    assert process.stdout is not None
    produce(bootstrap, topic, b"first\n")
    assert process.stdout.readline() == b"first\n"
    produce(bootstrap, topic, b"second\n")
    assert process.stdout.readline() == b"second\n"
    process.send_signal(number)
    assert end(process) == (b"", b"")
    assert process.returncode == 0


def test_closed_output_ends_consume_without_error(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, b"x\n" * 100)
    process = start(bootstrap, "consume", topic)
    assert process.stdout is not None
    assert process.stdout.readline() == b"x\n"
    process.stdout.close()
    process.stdout = None
    assert process.wait(PATIENCE_S) == 0
    assert end(process)[1] == b""


def test_typed_lines_are_written_at_once(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    process = start(bootstrap, "produce", topic)
    assert process.stdin is not None
    try:
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        assert done(bootstrap, "consume", topic, "-n", "1") == b"typed\n"
        process.stdin.write(b"more")
    finally:
        told = end(process)
    assert told[0].decode() == f"2 records written to {topic}: partition 0 at offsets 0 to 1\n"
    assert process.returncode == 0


def test_an_interrupted_producer_says_what_it_wrote(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    process = start(bootstrap, "produce", topic, "-T")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"typed\nhalf a li")
    process.stdin.flush()
    assert process.stdout.readline() == b"typed\n"
    process.send_signal(signal.SIGINT)
    out, err = end(process)
    assert (process.returncode, out) == (130, b"")
    assert err.decode() == f"1 record written to {topic}: partition 0 at offset 0\n"


def test_unreachable_cluster_is_one_line(tmp_path: Path) -> None:
    for words in (["produce", "t"], ["consume", "t"]):
        found = run("localhost:1", *words, "--timeout", "1", stdin=b"a\n")
        assert found.exit_code == 1
        assert found.stderr.startswith("tidelog: can't connect to localhost:1")
        assert found.stderr.count("\n") == 1
