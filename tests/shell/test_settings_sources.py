"""server.properties as Java reads it, KAFKA_* as the container images do, and --set."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.broker_settings import InvalidSettings
from tidelog.shell.settings_sources import (
    BadEscape,
    load_settings,
    parse_properties,
    variable_to_name,
)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(key, value) for _, key, value in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("a:1", [("a", "1")]),
        ("a 1", [("a", "1")]),
        ("  a \t=  1 2 ", [("a", "1 2 ")]),
        ("a = = 1", [("a", "= 1")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=1", [("", "1")]),
        ("# a=1\n ! b=2\n\n\t\nc=3", [("c", "3")]),
        ("a=1 # no comment", [("a", "1 # no comment")]),
        ("a=1\rb=2\r\nc=3\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1,\\\n   2,\\\r\n\t3", [("a", "1,2,3")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n# b", [("a", "1# b")]),
        ("# a\\\nb=2", [("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("\\\n\na=1", [("a", "1")]),
        ("a\\=b=c", [("a=b", "c")]),
        ("a\\ b=c", [("a b", "c")]),
        ("a\\:b:c", [("a:b", "c")]),
        ("\\#a=1", [("#a", "1")]),
        ("a=\\t\\n\\r\\f\\\\\\z", [("a", "\t\n\r\f\\z")]),
        ("a=\\u0041\\u00e9", [("a", "Aé")]),
        ("a=C:\\\\data", [("a", "C:\\data")]),
        ("a=1\u2028b\x0b\x85", [("a", "1\u2028b\x0b\x85")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_properties(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_lines_are_counted_from_where_an_entry_begins() -> None:
    text = "# one\na=1,\\\n  2\n\nb=3"
    assert [line for line, _, _ in parse_properties(text)] == [2, 5]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "\\u+123=1"])
def test_a_bad_escape_is_reported_with_its_line(text: str) -> None:
    with pytest.raises(BadEscape) as raised:
        pairs(f"\n{text}")
    assert raised.value.args[0] == 2


def escaped(text: str) -> str:
    """Escape text as java.util.Properties writes it."""
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    return "".join(
        special.get(
            c, f"\\{c}" if c in " \\=:#!" else c if " " < c < "\x7f" else f"\\u{ord(c):04x}"
        )
        for c in text
    )


WORDS = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)


@given(st.lists(st.tuples(WORDS.filter(bool), WORDS), max_size=4), st.sampled_from("\n\r"))
def test_whatever_java_writes_is_read_back(entries: list[tuple[str, str]], end: str) -> None:
    text = end.join(f"{escaped(key)}={escaped(value)}" for key, value in entries)
    assert pairs(text) == entries


@given(st.text(st.sampled_from("a=: \t\n\r\\#!u0"), max_size=30))
def test_any_text_is_parsed(text: str) -> None:
    try:
        found = pairs(text)
    except BadEscape:
        assert "\\u" in text
    else:
        assert len(found) <= len(text)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_A__B_C___D", "a_b.c-d"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_TIDELOG_METADATA_STORE", "tidelog.metadata.store"),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_OPTS", None),
        ("KAFKA_JMX_PORT", None),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", None),
        ("KAFKA_BOOTSTRAP_SERVERS", None),
        ("KAFKA_", None),
        ("PATH", None),
    ],
)
def test_variables(variable: str, name: str | None) -> None:
    assert variable_to_name(variable) == name


@pytest.mark.parametrize("name", BROKER)
def test_every_setting_has_a_variable(name: str) -> None:
    variable = name.upper().replace("-", "___").replace("_", "__").replace(".", "_")
    assert set(variable) <= set(string.ascii_uppercase + string.digits + "_")
    assert variable_to_name(f"KAFKA_{variable}") == name


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


def test_later_sources_take_precedence(properties: Path) -> None:
    properties.write_text("node.id=1\nnum.partitions=2\nbroker.rack=a\n")
    resolved = load_settings(
        str(properties),
        {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_BROKER_RACK": "b", "HOME": "/"},
        ["num.partitions=4", "log.dirs=/a=b"],
        {"num.partitions": "1", "default.replication.factor": "3", "node.id": "9"},
    )
    settings = resolved.settings
    assert resolved.warnings == []
    assert (settings.get("num.partitions"), settings.get("broker.rack")) == (4, "b")
    assert (settings.node_id, settings.log_dir) == (1, "/a=b")
    places = ("num.partitions", "broker.rack", "node.id", "default.replication.factor")
    assert [settings.source(name) for name in places] == [
        ("command line", "--set num.partitions"),
        ("environment", "KAFKA_BROKER_RACK"),
        ("file", f"{properties}:1"),
        ("tidelog up", "tidelog up"),
    ]


def test_all_invalid_settings_are_reported_at_once(properties: Path) -> None:
    properties.write_text("node.id=one\n\nbroker.rack=\\u12\nnum.partitions=0\n")
    with pytest.raises(InvalidSettings) as raised:
        load_settings(
            str(properties), {"KAFKA_MAX_CONNECTIONS": "-1"}, ["delete.topic.enable", "=1"]
        )
    assert str(raised.value).splitlines() == [
        f"{properties}:3: \\u12: must be \\u and four hexadecimal digits;"
        " a backslash is written twice",
        "command line: --set=delete.topic.enable: must be key=value",
        "command line: --set==1: must be key=value",
        f"{properties}:1: node.id=one: must be a whole number",
        "KAFKA_MAX_CONNECTIONS: max.connections=-1: must be at least 0 (connections)",
    ]


def test_a_missing_settings_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as raised:
        load_settings(str(tmp_path / "none"), sets=["node.id=1"])
    assert str(raised.value) == (
        f"command line: --config={tmp_path / 'none'}: No such file or directory"
    )


def test_a_key_that_is_set_twice_warns_and_the_last_one_counts(properties: Path) -> None:
    properties.write_text("node.id=1\nbroker.rack=a\nbroker.rack=b\n")
    resolved = load_settings(str(properties))
    assert resolved.settings.get("broker.rack") == "b"
    assert resolved.warnings == [f"{properties}:3: broker.rack is set twice; line 2 is ignored"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings(properties: Path, encoding: str) -> None:
    properties.write_bytes("node.id=1\nbroker.rack=Köln\n".encode(encoding))
    assert load_settings(str(properties)).settings.get("broker.rack") == "Köln"


def test_a_file_as_kafka_ships_it(properties: Path) -> None:
    properties.write_text(
        """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
socket.send.buffer.bytes=102400
log.dirs=/var/lib/kafka
offsets.topic.replication.factor=1
log.retention.hours=168
#log.retention.bytes=1073741824
"""
    )
    resolved = load_settings(str(properties))
    assert resolved.settings.listener == ("PLAINTEXT", "", 9092)
    assert resolved.settings.advertised(resolved.settings.listener, 9092, "h") == (
        "PLAINTEXT",
        "localhost",
        9092,
    )
    assert resolved.settings.internal_listener.host == "127.0.0.1"
    assert resolved.warnings == [
        "settings of Kafka without effect in Tidelog: controller.quorum.bootstrap.servers,"
        " num.network.threads, process.roles"
    ]
