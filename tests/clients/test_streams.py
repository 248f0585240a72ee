"""Kafka Streams with exactly_once_v2 counts words while brokers and the application are killed.

It emits every count. So each word must have the counts 1, 2, 3 and so on to its number, each once
and in order: a lost, repeated or aborted record would be seen.
"""

from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from client_programs import STREAMS, Program, program
from real_cluster import Sent, await_members, eventually, leader_of, make_topic
from real_transactions import await_stable, values_of

from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.slow

PARTITIONS, LINES = 3, 400
"""Lines in each round."""
WORDS = [f"word-{number}" for number in range(17)]
COUNTED_S = 180.0


def line(number: int) -> list[str]:
    return [WORDS[number % 17], WORDS[number * 5 % 17], WORDS[number * number % 17]]


class Lines:
    """The lines that were sent, and the counts that were committed."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self._bootstrap = cluster.bootstrap
        self.source = make_topic(cluster.bootstrap, f"{name}-lines", PARTITIONS, 3)
        self.topic = make_topic(cluster.bootstrap, f"{name}-counts", PARTITIONS, 3)
        self._sent = Sent(cluster.bootstrap, self.source, {"enable.idempotence": True})
        self._numbers = count()
        self.words: Counter[str] = Counter()

    def send_more(self) -> None:
        for _ in range(LINES):
            number = next(self._numbers)
            self.words.update(line(number))
            self._sent.send(b"%d" % number + b" " + " ".join(line(number)).encode(), number % 3)
            self.words[str(number)] += 1
        self._sent.settle()
        assert not self._sent.failed

    def counts(self) -> list[str]:
        """Return what read-committed readers see of the counts, each word's in order."""
        return [
            value.decode()
            for partition in range(PARTITIONS)
            for value in values_of(self._bootstrap, self.topic, partition)
        ]

    def await_counted(self, running: Program) -> None:
        def all_counted() -> bool:
            assert running.process.poll() is None, running.last_words
            return len(self.counts()) >= self.words.total()

        try:
            eventually(all_counted, "all words are counted", COUNTED_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{running.last_words}") from None


def test_counts_are_exact(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    lines = Lines(cluster, name)
    conf = {
        "bootstrap": cluster.bootstrap,
        "source": lines.source,
        "topic": lines.topic,
        "id": f"app-of-{name}",
        "session_ms": 6000,
    }
    for at in range(3):
        # Each time another machine, so without the state that the one before had on its disk.
        with program(STREAMS, "count", **conf, folder=str(tmp_path / str(at))) as running:
            assert running.line() == {"running": True}, running.last_words
            for dead in (leader_of(cluster, lines.topic), leader_of(cluster, lines.source, 1)):
                lines.send_more()
                cluster.kill(dead)
                try:
                    lines.await_counted(running)
                finally:
                    cluster.start_broker(dead)
                    await_members(cluster)
            lines.send_more()
    with program(STREAMS, "count", **conf, folder=str(tmp_path / "last")) as running:
        lines.await_counted(running)
    for partition in range(PARTITIONS):
        await_stable(cluster.bootstrap, lines.topic, partition)
    counts: dict[str, list[int]] = {}
    for each in lines.counts():
        word, number = each.split()
        counts.setdefault(word, []).append(int(number))
    assert counts == {word: list(range(1, n + 1)) for word, n in lines.words.items()}
