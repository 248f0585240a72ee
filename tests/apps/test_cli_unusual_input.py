"""Unusual numbers, times, names and streams: one line of error, no traceback."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.records import envelope
from tidelog.apps.cli.records.input_records import BadInput, by_format, split
from tidelog.apps.cli.records.points_in_time import TIME_MAX, parse_duration_ms, parse_time
from tidelog.apps.near_names import nearest
from tidelog.shell.client.client_errors import NoSuchPartition

NOW_MS = 1_700_000_000_000
FAR = "9" * 23


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "orders", "-p", FAR),
        ("topic", "create", "orders", "-r", "40000"),
        ("topic", "create", "orders", "--replica-assignment", f"{FAR}:1"),
        ("topic", "alter", "orders", "-p", FAR),
        ("topic", "list", "--timeout", "1e400"),
        ("reassign", "--topic", "orders", "--brokers", FAR),
        ("reassign", "--topic", "orders", "--replication-factor", "40000"),
        ("produce", "orders", "--timestamp", FAR),
        ("produce", "orders", "--delivery-timeout", "1e400"),
        ("consume", "orders", "-o", f"@{FAR}"),
        ("consume", "orders", "-p", "0-99999999999"),
        ("group", "reset", "billing", "--to-datetime", FAR),
        ("group", "reset", "billing", "--by-duration", f"P{FAR}D"),
    ],
    ids=" ".join,
)
def test_numbers_out_of_range_are_rejected(words: tuple[str, ...]) -> None:
    found = CliRunner().invoke(cli, [*words, "--bootstrap", "localhost:1"])
    assert found.exit_code == 2, found.output
    assert found.stderr.startswith("tidelog: ")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "0001-01-01", f"-{FAR}d"])
def test_times_before_1970_become_0(text: str) -> None:
    """Negative values are reserved: -1 means the end of a log, -2 its beginning."""
    assert parse_time(text, NOW_MS) == 0


def test_times_beyond_64_bits_are_rejected() -> None:
    assert parse_time(str(TIME_MAX), NOW_MS) == TIME_MAX
    with pytest.raises(ValueError, match="too large"):
        parse_time(str(TIME_MAX + 1), NOW_MS)
    with pytest.raises(ValueError, match="too long"):
        parse_duration_ms(f"P{FAR}D")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[" * 200_000, "invalid JSON"),
        (b'{"ts":%s}' % FAR.encode(), '"ts" is 9'),
        (b'{"ts":-2}', '"ts" is -2'),
        (rb'{"payload":"\ud800"}', "lone surrogate"),
        (rb'{"key":"\udfff"}', "lone surrogate"),
        (rb'{"headers":["\ud800","x"]}', "lone surrogate"),
        (rb'{"headers":["x","\ud800"]}', "lone surrogate"),
    ],
    ids=["nested", "far", "negative", "payload", "key", "header", "header value"],
)
def test_invalid_json_records_are_rejected(line: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        envelope.load(line)


def test_a_record_without_a_time_is_copied_as_it_is() -> None:
    assert envelope.load(b'{"ts":-1,"payload":"x"}').timestamp == -1


def test_number_in_the_input_is_limited() -> None:
    parse, _ = by_format("%T %s\n", None)
    assert parse(b"%d x" % TIME_MAX).timestamp == TIME_MAX
    with pytest.raises(BadInput, match="not a valid number for %T"):
        parse(b"%b x" % FAR.encode())


def test_missing_partition_suggests_describing_its_topic() -> None:
    assert "`tidelog topic describe orders`" in str(NoSuchPartition("orders", 7))


def test_suggestion_ignores_case() -> None:
    assert nearest("ORDERS", ["payments", "orders"]) == "did you mean orders?"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(closed: str) -> None:
    command = f"exec '{sys.executable}' -m tidelog story list --format json {closed}"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == b""
    if ">&-" not in closed.replace("2>&-", ""):
        assert json.loads(ran.stdout)["holds"]


class Pieces:
    """A source that returns a given number of bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._left = [data[at : at + size] for at in range(0, len(data), size)]

    def read(self, _size: int) -> bytes:
        return self._left.pop(0) if self._left else b""


@pytest.mark.parametrize("delimiter", [b"\n", b"ab", b"aab", b"aaa"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_records_do_not_depend_on_how_the_input_is_split(delimiter: bytes, size: int) -> None:
    data = b"xaabaaaaab\n\nabaaabbaaaaaaaaxx\naab\naaa\nab"
    source: Any = Pieces(data, size)
    found = [record for records in split(source, delimiter) for record in records]
    wanted = data.split(delimiter)
    assert found == (wanted if wanted[-1] else wanted[:-1])


def test_a_long_record_is_read_in_linear_time() -> None:
    size = 64 * 1024 * 1024
    source: Any = Pieces(b"x" * size, 16 * 1024)
    began = time.process_time()
    [record] = [record for records in split(source, b"--") for record in records]
    assert len(record) == size
    assert time.process_time() - began < 5, "4096 pieces, each looked at once"
