"""Pages about several machines, pasted block by block into a shell on each machine.

The machines are network namespaces. What differs from real machines: their addresses, a folder as
home directory of each, and `scp`, which copies between these folders. The test process is in a
fourth namespace, and so are its librdkafka clients. Without root, `ip`, `tc` or etcd the tests are
skipped with the reason.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.apps.verify.machines.etcd_member import find_etcd
from tidelog.apps.verify.machines.namespaces import (
    CannotMakeMachines,
    Network,
    check_requirements,
)

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "tutorial" / "three-machines.md"
OPERATIONS_PAGE = DOCS / "how-to" / "run-several-machines.md"
MACHINES = (1, 2, 3)
BLOCK_S = 180.0
"""The bound of one block, for a busy machine."""
_BLOCK = re.compile(r"<!-- machine: (all|\d) -->\n```sh\n(.*?)```\n", re.DOTALL)
_ADDRESSES = re.compile(r"M1=\S+ M2=\S+ M3=\S+")


class Block(NamedTuple):
    """Commands, and the machines to paste them on."""

    machines: tuple[int, ...]
    text: str


def blocks(page: Path = PAGE) -> list[Block]:
    """The blocks of a page in its order."""
    found = _BLOCK.findall(page.read_text())
    return [Block(MACHINES if who == "all" else (int(who),), text) for who, text in found]


class Terminal:
    """A shell on one machine that lives as long as the tutorial."""

    def __init__(self, network: Network, machine: int, home: Path, path: str) -> None:
        self._made_with = network, machine, home, path
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
            if time.monotonic() >= give_up:
                raise AssertionError(f"not finished: {text}\n{shown}\n{self._describe()}")
            time.sleep(0.05)

    def _describe(self) -> str:
        """What the leaders know of replicas that are out of sync, for the report of a failure."""
        network, machine, home, path = self._made_with
        command = [*network.command(machine), "tidelog", "partition", "describe", "payments"]
        try:
            return subprocess.run(
                [*command, "--format", "json"],
                cwd=home / "tidelog",
                env={"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"},
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"partitions not described: {error}"

    def again(self) -> "Terminal":
        """Open another terminal on the same machine."""
        return Terminal(*self._made_with)

    def close(self) -> None:
        os.close(self._input)
        self._process.kill()
        self._process.wait()


class Machines(NamedTuple):
    """Connected machines, with a terminal on each."""

    network: Network
    terminals: dict[int, Terminal]

    def paste(self, block: Block) -> str:
        """Paste a block of the page with the addresses of these machines; return the output."""
        addresses = " ".join(f"M{m}={self.network.address(m)}" for m in MACHINES)
        text = _ADDRESSES.sub(addresses, block.text)
        return [self.terminals[machine].paste(text) for machine in block.machines][-1]

    def open_new_terminal(self, machine: int) -> None:
        """Replace a terminal, and repeat the blocks of step 1 and the first one of step 2."""
        self.terminals[machine].close()
        self.terminals[machine] = self.terminals[machine].again()
        steps = PAGE.read_text().split("\n## ")
        first = "\n## ".join([*steps[:2], steps[2].partition("start_etcd\n")[0]])
        for machines, text in _BLOCK.findall(first):
            if machines in ("all", str(machine)):
                self.paste(Block((machine,), text))


@contextmanager
def machines(folder: Path, numbers: Sequence[int] = MACHINES) -> Iterator[Machines]:
    """Make machines; skip the test where they can't be made."""
    try:
        find_etcd()
        check_requirements()
    except CannotMakeMachines as error:
        pytest.skip(f"no machines here: {error}")
    network = Network(numbers, str(folder))
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
        for machine in numbers:
            home = folder / f"machine-{machine}"
            home.mkdir()
            opened[machine] = Terminal(network, machine, home, path)
        yield Machines(network, opened)
    finally:
        for terminal in opened.values():
            terminal.close()
        network.close()


@pytest.mark.parametrize("page", [PAGE, OPERATIONS_PAGE], ids=["tutorial", "operations"])
def test_every_block_says_where_to_paste_it(page: Path) -> None:
    assert page.read_text().count("```sh\n") == len(blocks(page)) > 0


def test_the_tutorial_begins_with_the_addresses() -> None:
    assert _ADDRESSES.fullmatch(blocks()[0].text.strip())


@pytest.mark.ci
def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    shown: dict[str, str] = {}
    with machines(tmp_path) as made:
        for block in blocks():
            if block.text.startswith("start_etcd\ntidelog up"):
                made.open_new_terminal(3)
            shown[block.text] = made.paste(block)
            if "topic create" in block.text:
                described = made.terminals[2].paste("tidelog topic describe payments --format json")
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


@pytest.mark.ci
def test_the_operations_work_as_they_are_written(tmp_path: Path) -> None:
    """Upgrade, back up, replace machine 3 by machine 4, and remove it again."""
    with machines(tmp_path, (*MACHINES, 4)) as made:
        prelude, lose = split_tutorial()
        for block in prelude:
            made.paste(block)
        address = made.network.address(4)
        all_addresses = " ".join(f"M{m}={made.network.address(m)}" for m in (*MACHINES, 4))
        for block in blocks(OPERATIONS_PAGE):
            if "--node-ids 31,32" in block.text:
                made.paste(lose)
                replace_etcd_member(made, address)
                made.paste(Block((4,), f"{all_addresses}\nN=4 ME=$M4\ncd ~/tidelog"))
            made.paste(block)
        records = made.paste(Block((2,), "tidelog consume payments -e | sort -n | uniq | wc -l"))
        assert int(records.split()[-1]) == 1000
        all_up = "until tidelog cluster brokers > brokers; do sleep 1; done"  # lists no dead broker
        shown = made.paste(Block((1,), f"{all_up}\ntidelog cluster brokers --format json"))
        assert {one["id"] for one in json.loads(shown)["brokers"]} == {11, 12, 21, 22}
        made.paste(Block((1, 2), "tidelog down"))


def split_tutorial() -> tuple[list[Block], Block]:
    """The blocks of the tutorial up to the first records, and the one that loses machine 3."""
    every = blocks()
    written = next(n for n, block in enumerate(every) if "topic create" in block.text)
    return every[: written + 1], next(block for block in every if "kill -9" in block.text)


def replace_etcd_member(made: Machines, address: str) -> None:
    """Do what the page does with `etcdctl`, which not every computer has, and start the member."""
    peer = f"http://{address}:2380"

    def is_removed() -> bool:
        members = call_etcd(made, "list", {}).get("members", [])
        lost = [one["ID"] for one in members if one["name"] == "m3"]
        for member in lost:
            call_etcd(made, "remove", {"ID": member})
        return bool(members) and not lost

    def is_added() -> bool:
        members = call_etcd(made, "list", {}).get("members", [])
        added = any(peer in one["peerURLs"] for one in members)
        if not added:
            call_etcd(made, "add", {"peerURLs": [peer]})
        return added

    eventually(is_removed, "etcd without the member m3")
    eventually(is_added, "etcd with a member for machine 4")
    left = [f"m{m}=http://{made.network.address(m)}:2380" for m in (1, 2, 4)]
    made.paste(
        Block(
            (4,),
            "mkdir -p ~/tidelog && cd ~/tidelog && cp ../../machine-1/tidelog/cluster-secret .\n"
            f"nohup etcd --name m4 --data-dir etcd-data --initial-cluster {','.join(left)}"
            f" --initial-cluster-state existing --listen-client-urls http://{address}:2379"
            f" --advertise-client-urls http://{address}:2379"
            f" --listen-peer-urls http://{address}:2380"
            f" --initial-advertise-peer-urls http://{address}:2380 > etcd.log 2>&1 &",
        )
    )


def call_etcd(made: Machines, what: str, request: dict[str, Any]) -> dict[str, Any]:
    """Call the members' API of etcd on machine 1. Return {} if it failed, or may have: etcd may be
    electing a leader, and a change whose response is missing may still happen."""
    connection = http.client.HTTPConnection(made.network.address(1), 2379, timeout=60)
    try:
        connection.request("POST", f"/v3/cluster/member/{what}", json.dumps(request))
        answer = connection.getresponse()
        body: dict[str, Any] = json.loads(answer.read())
    except OSError:
        return {}
    finally:
        connection.close()
    return body if answer.status == http.HTTPStatus.OK else {}


# -- librdkafka clients on a fourth machine


TOPIC = "orders"
PARTITIONS = 6
RECOVERY_S = 180.0
"""The bound of a recovery as clients see it. By default librdkafka waits half a minute and longer
for a broker that does not respond."""
SHORT_TIMEOUTS = {"socket.timeout.ms": 3000, "topic.metadata.refresh.interval.ms": 1000}


class Writer(threading.Thread):
    """A producer that writes numbers to each partition in turn."""

    def __init__(self, settings: dict[str, Any], **own: Any) -> None:
        super().__init__(name="writer", daemon=True)
        self.acked: dict[int, list[int]] = defaultdict(list)
        """The acknowledged numbers by partition, in the order of their offsets."""
        self.failed: list[str] = []
        self.sent = 0
        self._ending = threading.Event()
        self._client = Producer({**settings, "enable.idempotence": True, **own})

    def run(self) -> None:
        while not self._ending.is_set():
            value = str(self.sent)
            partition = self.sent % PARTITIONS
            self._client.produce(TOPIC, value, partition=partition, on_delivery=self._on_delivery)
            self.sent += 1
            self._client.poll(0.002)
        self._client.flush(RECOVERY_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value, partition = message.value(), message.partition()
        assert isinstance(value, bytes)
        assert partition is not None
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[partition].append(int(value))

    def await_recovery(self, what: str) -> None:
        """Wait until each partition has acknowledged a record that is sent from now on."""
        now, began = self.sent, time.monotonic()
        eventually(lambda: self._are_acked_after(now), f"acknowledgements after {what}")
        print(f"{what}: {time.monotonic() - began:.2f} s")  # noqa: T201 - shown if the test fails

    def _are_acked_after(self, number: int) -> bool:
        return all(self.acked[p] and self.acked[p][-1] >= number for p in range(PARTITIONS))

    def stop(self) -> None:
        self._ending.set()
        self.join(RECOVERY_S)
        assert not self.is_alive()


class GroupReader(threading.Thread):
    """A member of a consumer group."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(name="reader", daemon=True)
        self.read: dict[int, dict[int, int]] = defaultdict(dict)
        """The numbers by partition and offset."""
        self.errors: list[str] = []
        self._ending = threading.Event()
        self._client = Consumer(
            {**settings, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        self._client.subscribe([TOPIC])

    def run(self) -> None:
        while not self._ending.is_set():
            message = self._client.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.errors.append(str(error))
                continue
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert isinstance(value, bytes)
            assert partition is not None
            assert offset is not None
            seen = self.read[partition].setdefault(offset, int(value))
            assert seen == int(value)
        self._client.close()

    def numbers(self, partition: int) -> list[int]:
        """The numbers of a partition in the order of their offsets."""
        return [number for _, number in sorted(dict(self.read[partition]).items())]

    def stop(self) -> None:
        self._ending.set()
        self.join(RECOVERY_S)
        assert not self.is_alive()


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + RECOVERY_S
    while not holds():
        assert time.monotonic() < until, f"no {what} within {RECOVERY_S:g} s"
        time.sleep(0.05)


def is_created(admin: AdminClient) -> bool:
    """Create the topic; return whether it exists. librdkafka does not retry this request."""
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result()
    except KafkaException as failed:
        return bool(failed.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


@pytest.mark.parametrize(
    ("timeouts", "request_ms"),
    [
        pytest.param(SHORT_TIMEOUTS, 2500, id="short time-outs", marks=pytest.mark.ci),
        pytest.param({}, 30_000, id="default time-outs", marks=pytest.mark.slow),
    ],
)
def test_librdkafka_on_a_fourth_machine_loses_nothing(
    timeouts: dict[str, int], request_ms: int, tmp_path: Path
) -> None:
    """The cluster of the tutorial, while a broker, a link and a machine fail one after another."""
    prelude, lose = split_tutorial()
    back = next(block for block in blocks() if block.text.startswith("start_etcd\ntidelog up"))
    in_sync = Block((1,), "until tidelog cluster health; do sleep 1; done")
    with machines(tmp_path) as made:
        for block in prelude:
            made.paste(block)
        bootstrap = ",".join(f"{made.network.address(m)}:9092" for m in MACHINES)
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, **timeouts}
        admin = AdminClient(settings)
        eventually(lambda: is_created(admin), "topic")
        writer = Writer(settings, **{"request.timeout.ms": request_ms})
        reader = GroupReader(settings)
        writer.start()
        reader.start()
        writer.await_recovery("the start")

        made.paste(Block((1,), "tidelog broker kill 11"))
        writer.await_recovery("the kill of a broker")
        made.paste(Block((1,), "tidelog broker start 11"))
        made.paste(in_sync)

        made.network.cut(2)
        writer.await_recovery("a cut")
        made.network.mend(2)
        made.paste(in_sync)

        made.paste(lose)
        writer.await_recovery("the loss of a machine")
        made.paste(back)
        made.paste(in_sync)

        writer.stop()
        assert writer.failed == []
        eventually(
            lambda: all(len(reader.read[p]) >= len(acked) for p, acked in writer.acked.items()),
            "consumer at the log ends",
        )
        for partition, acked in writer.acked.items():
            assert acked == list(range(partition, writer.sent, PARTITIONS))
            assert reader.numbers(partition) == acked  # none lost, none twice, in their order
        reader.stop()
