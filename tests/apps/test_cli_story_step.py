"""`tidelog story play --step` in a real terminal (a pty), and without one."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from rich.console import Console

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.rendering.story_steps import replica_box, step_screen
from tidelog.apps.stories.shelf import played

LOSS = "hw-loses-acked-record"
WAIT_S = 120.0
RIGHT, LEFT, END, HOME = "\x1b[C", "\x1b[D", "\x1b[F", "\x1b[H"


class Terminal:
    """A process on a pty, and what it printed."""

    def __init__(self, *arguments: str, rows: int = 45, columns: int = 120) -> None:
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        size = struct.pack("HHHH", rows, columns, 0, 0)
        command = [sys.executable, "-m", "tidelog", *arguments]
        self.mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        # setsid --ctty makes the pty the controlling terminal, so that Ctrl-C sends a signal.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.shown = ""
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def until(self, text: str) -> str:
        """Read until the newest screen has the text; return that screen."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.screen:
            assert time.monotonic() < deadline, f"{text!r} not in:\n{self.screen}"
            self._read()
        return self.screen

    def _read(self) -> bool:
        """Read what comes within a moment; return whether something came."""
        ready = select.poll()  # select() takes no descriptor above 1023
        ready.register(self.mine, select.POLLIN)
        if any(event & select.POLLIN for _, event in ready.poll(100)):
            self.shown += self._decoder.decode(os.read(self.mine, 65536))
            return True
        return False

    @property
    def screen(self) -> str:
        """What was printed since the screen was last cleared."""
        return self.shown.rpartition("\x1b[2J")[2]

    def press(self, keys: str) -> None:
        os.write(self.mine, keys.encode())

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running:\n{self.screen}"
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.theirs)
        os.close(self.mine)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal("story", "play", LOSS, "--step")
    yield found
    found.close()


def test_one_key_press_is_one_step_forward_or_back(terminal: Terminal) -> None:
    first = terminal.until("q: quit")
    assert "step 6 of 20" in first, "it begins after the steps of `given:`"
    assert "A follower hears of a new high watermark one fetch late" in first
    terminal.press("\n")
    terminal.until("step 7 of 20")
    terminal.press(" ")
    terminal.until("step 8 of 20")
    terminal.until("the rules differ here")
    terminal.press("b")
    terminal.until("step 7 of 20")
    terminal.press(RIGHT)
    terminal.until("step 8 of 20")
    terminal.press(LEFT)
    terminal.until("step 7 of 20")
    terminal.press("x")  # not a key of the player
    terminal.press(END)
    terminal.until("step 20 of 20")
    terminal.until("high-watermark breaks acked-records-survive")
    terminal.press("\n")  # stays at the end
    terminal.press(HOME)
    terminal.until("step 1 of 20")
    terminal.press("b")  # stays at the start
    terminal.press("q")
    assert terminal.ended() == 0


@pytest.mark.parametrize("key", ["q", "\x03", "\x04", "\x1b"], ids=["q", "^C", "^D", "escape"])
def test_quitting_restores_the_terminal(terminal: Terminal, key: str) -> None:
    terminal.until("q: quit")
    assert termios.tcgetattr(terminal.mine)[3] != terminal.before[3], "keys are not echoed"
    terminal.press(key)
    terminal.ended()
    assert terminal.shown.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(terminal.mine)[3] == terminal.before[3]
    assert terminal.process.returncode == 0


def test_without_a_terminal_the_error_says_so() -> None:
    found = CliRunner().invoke(cli, ["story", "play", LOSS, "--step"])
    assert found.exit_code == 2
    assert "--step needs a terminal, but stdin is not one" in found.output
    assert "without --step the whole story is printed" in found.output


def test_step_and_another_format_are_refused() -> None:
    found = CliRunner().invoke(cli, ["story", "play", LOSS, "--step", "--format", "json"])
    assert found.exit_code == 2
    assert "--step can't be combined with --format json" in found.output


# -- the drawing


def lines(at: int, width: int = 120, height: int = 60) -> list[str]:
    console = Console(width=width, height=height, markup=False, highlight=False)
    return [line.plain for line in step_screen(played("truncation/" + LOSS), at, console)]


def test_rules_are_side_by_side_if_they_fit_and_stacked_if_not() -> None:
    heads = next(line for line in lines(7) if "under high-watermark" in line)
    assert "under leader-epoch" in heads
    narrow = lines(7, width=60)
    assert "under leader-epoch" in narrow
    assert max(map(len, narrow)) <= 60


def test_a_low_screen_gets_a_note_instead_of_lines_that_scroll_away() -> None:
    low = lines(7, width=60, height=12)
    assert len(low) <= 12
    assert "enlarge the terminal" in low[-2]


def test_a_log_is_boxes_with_marks_below_their_boundaries() -> None:
    replica = {
        "name": "B",
        "role": "follower",
        "topic": "story",
        "internal": False,
        "alive": True,
        "assigned": True,
        "in_isr": True,
        "last_stable_offset": None,
        "leader_epoch": 1,
        "epochs": [[0, 0], [1, 1]],
        "log": [[0, 0, "m1"], [1, 1, "m3"]],
        "omitted": 0,
        "log_end_offset": 2,
        "high_watermark": 1,
    }
    assert [line.plain for line in replica_box(replica, 60)] == [
        "B follower  epoch 1  in sync  epochs [0:0 1:1]",
        "┌──────┬──────┐",
        "│ m1@0 │ m3@1 │",
        "└──────┴──────┘",
        "       ┃HW=1  ▏LEO=2",
    ]
    empty = replica | {"log": [], "log_end_offset": 0, "high_watermark": 0}
    drawn = [line.plain for line in replica_box(empty, 60)][1:]
    assert drawn == ["┌┐", "│", "└┘", "┃HW=0 ▏LEO=0"]
    long = replica | {
        "log": [[at, 0, f"m{at + 1}"] for at in range(40)],
        "log_end_offset": 40,
        "high_watermark": 40,
    }
    boxes = [line.plain for line in replica_box(long, 80)]
    assert boxes[2].startswith("… 34 more │ m35@0 │")
    assert max(map(len, boxes)) <= 80


def test_a_story_about_transactions_shows_coordinators_and_the_last_stable_offset() -> None:
    story = played("transactions/a-written-decision-outlives-its-coordinator")
    at = next(n for n, step in enumerate(story["steps"]) if step["command"] == "commit p1")
    text = "\n".join(line.plain for line in step_screen(story, at, Console(width=100, height=60)))
    assert "A leader  epoch 0  in sync  LSO 0" in text
    assert "C leader  epoch 0  in sync  of __transaction_state" in text
    assert "Empty(t) · Ongoing(t) · PrepareCommit(t)" in text


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "Empty(t) · Ongoing(t) · PrepareCommit(t)"),
        (34, "… · Ongoing(t) · PrepareCommit(t)"),
        (10, "… · PrepareCommit(t)"),
    ],
)
def test_of_a_coordinator_the_newest_records_are_shown(width: int, shown: str) -> None:
    story = played("transactions/a-written-decision-outlives-its-coordinator")
    step = next(step for step in story["steps"] if step["command"] == "commit p1")
    replicas = step["frames"]["leader-epoch"]["replicas"]
    coordinator = next(each for each in replicas if each["name"] == "C")
    assert replica_box(coordinator, width)[1].plain == shown
