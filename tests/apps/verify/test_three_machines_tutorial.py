"""The tutorial "three machines", pasted block by block into a shell on each of three machines.

The machines are network namespaces. What differs from real machines: their addresses, a folder as
home directory of each, and `scp`, which copies between these folders. Without root, `ip`, `tc` or
etcd the test is skipped with the reason.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.apps.verify.machines.etcd_member import find_etcd
from tidelog.apps.verify.machines.namespaces import (
    CannotMakeMachines,
    Network,
    check_requirements,
)

PAGE = Path(__file__).parents[3] / "docs" / "tutorial" / "three-machines.md"
MACHINES = (1, 2, 3)
BLOCK_S = 180.0
"""The bound of one block, for a busy machine."""
_BLOCK = re.compile(r"<!-- machine: (all|\d) -->\n```sh\n(.*?)```\n", re.DOTALL)
_ADDRESSES = re.compile(r"M1=\S+ M2=\S+ M3=\S+")


class Block(NamedTuple):
    """Commands, and the machines to paste them on."""

    machines: tuple[int, ...]
    text: str


def blocks() -> list[Block]:
    """The blocks of the page in its order."""
    found = _BLOCK.findall(PAGE.read_text())
    return [Block(MACHINES if who == "all" else (int(who),), text) for who, text in found]


class Terminal:
    """A shell on one machine that lives as long as the tutorial."""

    def __init__(self, network: Network, machine: int, home: Path, path: str) -> None:
        self._output = home / "terminal.txt"
        self._pasted = 0
        commands, self._input = os.pipe()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*network.command(machine), "bash", f"/dev/fd/{commands}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[commands],
                cwd=home,
                env={
                    "HOME": str(home),
                    "PATH": path,
                    "LANG": "C.UTF-8",
                    "ETCD_UNSUPPORTED_ARCH": "arm64",
                },
            )
        os.close(commands)

    def paste(self, text: str) -> str:
        """Run the commands, each of which must succeed; return what they print."""
        self._pasted += 1
        end = f"end of block {self._pasted}"
        before = len(self._output.read_text())
        checked = f"set -eE -o pipefail; trap 'echo \"failed: $BASH_COMMAND\"' ERR\n{text}"
        os.write(self._input, f"{checked}\necho '{end}'\n".encode())
        give_up = time.monotonic() + BLOCK_S
        while True:
            shown = self._output.read_text()[before:]
            if f"{end}\n" in shown:
                return shown.partition(end)[0]
            assert self._process.poll() is None, f"{text}\n{shown}"
            assert time.monotonic() < give_up, f"not finished: {text}\n{shown}"
            time.sleep(0.05)

    def close(self) -> None:
        os.close(self._input)
        self._process.kill()
        self._process.wait()


@contextmanager
def terminals(folder: Path) -> Iterator[dict[int, Terminal]]:
    """A terminal on each of three machines."""
    network = Network(MACHINES, str(folder))
    programs = folder / "bin"
    programs.mkdir()
    scp = programs / "scp"
    scp.write_text(
        f'#!/bin/sh\nhost=${{2%%:*}}\ncp -p "$1" {folder}/machine-${{host##*.}}/${{2#*:}}\n'
    )
    scp.chmod(0o755)
    own = [str(programs), os.path.dirname(sys.executable), os.path.dirname(find_etcd())]
    path = os.pathsep.join([*own, os.environ["PATH"]])
    opened: dict[int, Terminal] = {}
    try:
        network.open()
        for machine in MACHINES:
            home = folder / f"machine-{machine}"
            home.mkdir()
            opened[machine] = Terminal(network, machine, home, path)
        yield opened
    finally:
        for terminal in opened.values():
            terminal.close()
        network.close()


def test_every_block_says_where_to_paste_it() -> None:
    assert PAGE.read_text().count("```sh\n") == len(blocks())
    assert _ADDRESSES.fullmatch(blocks()[0].text.strip())


@pytest.mark.ci
def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    try:
        find_etcd()
        check_requirements()
    except CannotMakeMachines as error:
        pytest.skip(f"no machines here: {error}")
    addresses = " ".join(f"M{m}={Network(MACHINES, '').address(m)}" for m in MACHINES)
    shown: dict[str, str] = {}
    with terminals(tmp_path) as opened:
        for block in blocks():
            text = _ADDRESSES.sub(addresses, block.text)
            for machine in block.machines:
                shown[block.text] = opened[machine].paste(text)
            if "topic create" in block.text:
                described = opened[2].paste("tidelog topic describe payments --format json")
                assert_placed_on_all_machines(described)
    counts = [int(text.split()[-1]) for block, text in shown.items() if "wc -l" in block]
    assert counts == [1000, 2000], shown


def assert_placed_on_all_machines(described: str) -> None:
    """Each partition has a replica on each machine, and every broker is used."""
    (topic,) = json.loads(described)["topics"]
    placed = [partition["replicas"] for partition in topic["partitions"]]
    assert len(placed) == 12
    assert all({broker // 10 for broker in replicas} == {1, 2, 3} for replicas in placed)
    assert {broker for replicas in placed for broker in replicas} == {11, 12, 21, 22, 31, 32}
