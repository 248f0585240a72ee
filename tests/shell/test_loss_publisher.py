"""Which lines of a ledger the publisher reads next, and after which position."""

import os
from pathlib import Path

from tidelog.core.storage import layout
from tidelog.shell.broker import loss_publisher
from tidelog.shell.broker.loss_publisher import Position, record_key


def read_from(root: Path, known: Position, topic: str = "t") -> tuple[list[bytes], Position]:
    lines: list[bytes] = []
    position = known
    for page, after in loss_publisher._pages(str(root), known, topic):
        lines += page
        position = after
    return lines, position


def test_only_new_complete_lines_are_read(tmp_path: Path) -> None:
    ledger = tmp_path / layout.LOSSES
    ledger.write_bytes(b"one\ntwo\nthr")
    lines, position = read_from(tmp_path, Position())
    assert lines == [b"one", b"two"]
    assert read_from(tmp_path, position) == ([], position)
    ledger.write_bytes(b"one\ntwo\nthree\n")
    assert read_from(tmp_path, position)[0] == [b"three"]


def test_a_renamed_ledger_is_read_to_its_end_first(tmp_path: Path) -> None:
    ledger = tmp_path / layout.LOSSES
    ledger.write_bytes(b"one\n")
    _, position = read_from(tmp_path, Position())
    with open(ledger, "ab") as file:
        file.write(b"two\n")
    os.rename(ledger, tmp_path / layout.OLD_LOSSES)
    ledger.write_bytes(b"three\n")
    lines, position = read_from(tmp_path, position)
    assert lines == [b"two", b"three"]
    assert read_from(tmp_path, position)[0] == []


def test_everything_is_read_again_for_another_topic_or_another_file(tmp_path: Path) -> None:
    ledger = tmp_path / layout.LOSSES
    ledger.write_bytes(b"one\n")
    _, position = read_from(tmp_path, Position(), "first")
    assert read_from(tmp_path, position, "second")[0] == [b"one"]
    (tmp_path / "copy").write_bytes(b"one\n")
    os.replace(tmp_path / "copy", ledger)
    assert read_from(tmp_path, position, "first")[0] == [b"one"]


def test_a_large_ledger_is_read_in_pages_of_whole_lines(tmp_path: Path) -> None:
    written = [b"%06d %s" % (number, b"x" * 500) for number in range(1000)]
    (tmp_path / layout.LOSSES).write_bytes(b"\n".join(written) + b"\n")
    pages = [page for page, _ in loss_publisher._pages(str(tmp_path), Position(), "t")]
    assert [line for page in pages for line in page] == written
    assert len(pages) > 5


def test_the_key_has_the_broker_and_damaged_lines_have_none() -> None:
    assert record_key(b'{"broker": 2, "id": "x/unclean/4"}') == b"2:x/unclean/4"
    for line in (b"", b"{", b"[1]", b'{"id": "x"}', b"\xff"):
        assert record_key(line) is None
