"""Members of consumer groups as processes that a test starts, controls and kills."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from group_member import CONFLUENT
from real_cluster import PATIENCE_S, eventually

from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.groups.group_admin import describe_group
from tidelog.shell.supervisor.cluster import LocalCluster

FIND_COORDINATOR = 10
SCRIPT = Path(__file__).with_name("group_member.py")


class GroupMember:
    """A process of group_member.py, or of a program with the same protocol, and its output."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        command: Sequence[str] = (sys.executable, str(SCRIPT)),
        **conf: Any,
    ) -> None:
        self.assignments: list[list[int]] = []
        """Every one it had, the latest last."""
        self.records: list[tuple[int, int, str]] = []
        self.commits: list[dict[int, int]] = []
        self.errors: list[str] = []
        wanted = {
            "library": CONFLUENT,
            "bootstrap": bootstrap,
            "group": group,
            "topic": topic,
            "client": "member",
            "instance": "",
            "assignor": "roundrobin",
            "session_ms": 60_000,
            "heartbeat_ms": 200,
            **conf,
        }
        self.process = subprocess.Popen(
            [*command, json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: list[str] = []
        self._readers = [
            threading.Thread(target=self._listen),
            threading.Thread(target=self._listen_for_trouble),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "assigned" in said:
                self.assignments.append(said["assigned"])
            elif "record" in said:
                partition, offset, value = said["record"]
                self.records.append((partition, offset, value))
            elif "committed" in said:
                told = {int(at): offset for at, offset in said["committed"].items()}
                self.commits.append({at: offset for at, offset in told.items() if offset})
            else:
                self.errors.append(said["error"])

    def _listen_for_trouble(self) -> None:
        assert self.process.stderr is not None
        self._said += self.process.stderr

    @property
    def assigned(self) -> list[int]:
        return self.assignments[-1] if self.assignments else []

    @property
    def trouble(self) -> str:
        """The errors that the member reported, and its error output."""
        return " ".join((*self.errors, *self._said))

    @property
    def values(self) -> list[str]:
        return [value for _, _, value in self.records]

    def until(self, true: Callable[["GroupMember"], bool], what: str) -> "GroupMember":
        def look() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the member ended: {''.join(self._said)}")
            return true(self)

        try:
            eventually(look, what)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; {self.assignments} {self.errors} {self._said}"
            ) from None
        return self

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def commit(self) -> dict[int, int]:
        """Commit the read records; return the group's offsets from its coordinator."""
        before = len(self.commits) + len(self.errors)
        self.tell("commit")
        self.until(lambda m: len(m.commits) + len(m.errors) > before, "an answer to the commit")
        assert not self.errors, self.errors
        return self.commits[-1]

    def close(self) -> None:
        """Leave the group."""
        self.tell("close")
        assert self.process.wait(PATIENCE_S) == 0, "".join(self._said)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def done(self) -> None:
        """End the process in whatever state it is."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # it ended before it read the last command
                pipe.close()


class GroupStage:
    """A cluster, a topic and a group; all members end with the test."""

    def __init__(self, cluster: LocalCluster, group: str, topic: str) -> None:
        self.cluster = cluster
        self.group = group
        self.topic = topic
        self.members: list[GroupMember] = []

    def member(self, **conf: Any) -> GroupMember:
        made = GroupMember(self.cluster.bootstrap, self.group, self.topic, **conf)
        self.members.append(made)
        return made

    def balanced(self, *members: GroupMember, partitions: int) -> None:
        """Wait until every partition has one owner, and members' counts differ by at most one."""

        def look() -> bool:
            sizes = [len(member.assigned) for member in members]
            owned = sorted(at for member in members for at in member.assigned)
            return owned == list(range(partitions)) and max(sizes) - min(sizes) <= 1

        try:
            eventually(look, f"{len(members)} members share {partitions} partitions")
        except AssertionError as error:
            told = [(m.assignments, m.errors, m.process.poll()) for m in members]
            raise AssertionError(f"{error}: {told}; {self._description()}") from None

    def _description(self) -> object:
        """Return the group as its coordinator describes it, for the text of a failure."""
        try:
            with Cluster(self.cluster.bootstrap, timeout_s=PATIENCE_S) as client:
                return describe_group(client, self.group)
        except ClientError as error:
            return error

    def coordinator(self) -> int:
        """Return the group's coordinator, as a running broker reports it."""

        def look() -> int | None:
            for broker in self.cluster.ids:
                if not self.cluster.is_running(broker):
                    continue
                with KafkaConnection("127.0.0.1", self.cluster.port(broker)) as connection:
                    asked = {"key": self.group, "key_type": 0}
                    told = connection.call(FIND_COORDINATOR, asked, max_version=3)
                if told["error_code"] == 0 and self.cluster.is_running(told["node_id"]):
                    return int(told["node_id"])
            return None

        return eventually(look, f"the coordinator of {self.group}")


@contextmanager
def group_stage(cluster: LocalCluster, group: str, topic: str) -> Iterator[GroupStage]:
    stage = GroupStage(cluster, group, topic)
    try:
        yield stage
    finally:
        for member in stage.members:
            member.done()
