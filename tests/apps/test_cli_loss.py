"""`tidelog loss list` of data folders: what was lost, in text and as JSON."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tidelog.apps.cli.main import cli
from tidelog.apps.views.losses import read_losses
from tidelog.core.history import HistoryEvent
from tidelog.core.storage import layout

LOSS: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "cause": "leader_change",
    "leader": 3,
    "leader_epoch": 1,
    "first_epoch": 0,
    "last_epoch": 0,
    "start": 5,
    "end": 12,
    "records": 7,
    "committed": 0,
    "acked_1": 4,
    "acked_all": 0,
    "not_acked": 2,
    "acks_unknown": 1,
}
ELECTION: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "cause": "unclean_election",
    "leader": 2,
    "leader_epoch": 4,
    "start": None,
    "end": None,
}


def entry(at_ms: int, broker: int, name: str, event: str = "loss", **fields: Any) -> bytes:
    known = ELECTION if event == "unclean_election" else LOSS
    made = HistoryEvent(at_ms, broker, event, {"id": name, **known, **fields}, "WARN", "text")
    return json.dumps(made.as_data()).encode() + b"\n"


def log_dir(path: Path, *lines: bytes, old: bytes = b"") -> None:
    path.mkdir(parents=True)
    (path / layout.META_PROPERTIES).write_text("version=1\n")
    (path / layout.LOSSES).write_bytes(b"".join(lines))
    if old:
        (path / layout.OLD_LOSSES).write_bytes(old)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["loss", "list", *map(str, arguments)])


def ids(result: Result) -> list[str]:
    document = json.loads(result.stdout)
    assert document["holds"] is (result.exit_code == 0)
    return [loss["id"] for loss in document["losses"]]


def test_all_log_directories_below_a_folder_are_read_in_order_of_time(tmp_path: Path) -> None:
    log_dir(tmp_path / "broker-1", entry(3000, 1, "c"), old=entry(1000, 1, "a"))
    log_dir(tmp_path / "broker-2" / "disk", entry(2000, 2, "b"))
    assert ids(run("--data", tmp_path, "--format", "json")) == ["a", "b", "c"]
    assert ids(run("--data", tmp_path / "broker-1", "--format", "json")) == ["a", "c"]


def test_losses_are_filtered_by_topic_and_time(tmp_path: Path) -> None:
    lines = [entry(1000, 1, "a"), entry(2000, 1, "b", topic="payments"), entry(3000, 1, "c")]
    log_dir(tmp_path / "broker-1", *lines)
    found = run("--data", tmp_path, "--topic", "orders", "--since", "1500", "--format", "json")
    assert ids(found) == ["c"]


def test_an_entry_that_two_brokers_wrote_is_listed_once_with_all_that_is_known(
    tmp_path: Path,
) -> None:
    name = "x/unclean/4"
    log_dir(tmp_path / "broker-1", entry(1000, 1, name, "unclean_election"))
    log_dir(tmp_path / "broker-2", entry(1001, 2, name, "unclean_election", start=7))
    [found] = read_losses(str(tmp_path)).losses
    assert (found.start, found.broker) == (7, 2)


def test_text_says_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    log_dir(
        tmp_path / "broker-1",
        entry(1_795_035_302_646, 1, "a"),
        entry(1_795_035_302_700, 1, "b", "unclean_election", start=5),
        entry(1_795_035_302_800, 1, "c", cause="log_lost", start=None, end=None, records=None),
    )
    lines = run("--data", tmp_path).stdout.splitlines()
    assert lines[0] == (
        "2026-11-18 20:55:02 UTC  orders/0  broker 1: truncated after a leader change"
    )
    assert lines[1].strip() == (
        "removed offsets 5 to 11 of epoch 0 (7 records: 4 acknowledged with acks=1,"
        " 2 not acknowledged, 1 unknown whether acknowledged); broker 3 led epoch 1"
    )
    assert lines[3].strip() == (
        "broker 2 led epoch 4; committed records from offset 5 on may be lost"
    )
    assert lines[5].strip() == "all its records; their number is unknown"
    assert lines[6] == "3 entries"


def test_lines_that_are_no_entries_are_skipped(tmp_path: Path) -> None:
    log_dir(tmp_path / "broker-1", b"\xff\n[]\n{}\n", entry(1000, 1, "a"), b'{"ts": "2026')
    assert ids(run("--data", tmp_path, "--format", "json")) == ["a"]


def test_an_empty_ledger_is_good_news(tmp_path: Path) -> None:
    log_dir(tmp_path / "broker-1")
    found = run("--data", tmp_path)
    assert (found.exit_code, "no record was lost" in found.stdout) == (0, True)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for arguments, text in (
        (("--data", tmp_path), "has no log directory"),
        (("--data", tmp_path, "-b", "localhost:1"), "can't be used together"),
        (("--since", "yesterday"), "is not a time"),
    ):
        found = CliRunner().invoke(cli, ["loss", "list", *map(str, arguments)])
        assert found.exit_code == 2
        assert text in found.stderr
        assert found.stderr.count("\n") == 1
