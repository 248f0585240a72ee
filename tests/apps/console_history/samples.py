"""Samples of a cluster that exists only in tests, whose state is changed by hand."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from tidelog.core.storage.layout import format_topic_id
from tidelog.shell.client.cluster_metadata import (
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

BEGAN_MS = 1_700_000_000_000
UPTIME_MS = 50_000
TOPIC_ID = bytes(range(16))


class FakePartition:
    """One partition on brokers 1 to 3, as brokers and metadata report it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.leader: int | None = 1
        self.epoch = self.partition_epoch = 0
        self.replicas = [1, 2, 3]
        self.isr = [1, 2, 3]
        self.elr: list[int] = []
        self.ends = dict.fromkeys(self.replicas, 0)
        self.high_watermark = 0
        self.epochs = [[0, 0]]
        self.last_fetch_ms = dict.fromkeys(self.replicas, UPTIME_MS - 100)
        self.damage: dict[int, dict[str, Any]] = {}
        self.unclean: dict[str, Any] | None = None
        self.adding: list[int] = []
        self.unstable: dict[int, dict[str, Any]] = {}

    def elect(self, leader: int | None, isr: Iterable[int], elr: Iterable[int] = ()) -> None:
        self.epoch += leader != self.leader
        self.partition_epoch += 1
        self.leader, self.isr, self.elr = leader, list(isr), list(elr)
        if leader is not None and self.epochs[-1][0] != self.epoch:
            self.epochs = [*self.epochs, [self.epoch, self.ends[leader]]]

    def metadata(self, alive: Iterable[int]) -> PartitionMetadata:
        away = [broker for broker in self.replicas if broker not in alive]
        leader = -1 if self.leader is None else self.leader
        return PartitionMetadata(
            self.partition, 0, leader, self.epoch, list(self.replicas), list(self.isr), away
        )

    def state(self, broker: int, now_ms: int) -> dict[str, Any]:
        leads = broker == self.leader
        end = self.ends[broker]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": format_topic_id(TOPIC_ID),
            "role": "leader" if leads else "follower",
            "leader": self.leader,
            "leader_epoch": self.epoch,
            "partition_epoch": self.partition_epoch,
            "log_start_offset": 0,
            "log_end_offset": end,
            "high_watermark": min(end, self.high_watermark),
            "last_stable_offset": min(end, self.high_watermark),
            "recovery_point": end // 100 * 100,
            "epochs": deepcopy(self.epochs),
            "damage": self.damage.get(broker),
            "refused": None,
            "size": end * 100,
            "segments": 1 + end // 10_000,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "maximal_isr": sorted(self.isr) if leads else None,
            "pending_isr": None,
            "elr": list(self.elr),
            "lost": [],
            "min_isr": 2,
            "adding": list(self.adding),
            "removing": [],
            "unclean_election": self.unclean,
            "unstable": self.unstable.get(broker),
            "followers": [
                self._follower(each, now_ms) for each in self.replicas if leads and each != broker
            ],
        }

    def _follower(self, broker: int, now_ms: int) -> dict[str, Any]:
        assert self.leader is not None
        fetched, end = self.last_fetch_ms[broker], self.ends[broker]
        in_isr = broker in self.isr
        return {
            "broker": broker,
            "log_end_offset": end,
            "log_start_offset": 0,
            "lag": self.ends[self.leader] - end,
            "last_caught_up_ms": fetched,
            "lag_ms": max(0, now_ms - fetched),
            "last_fetch_ms": fetched,
            "in_isr": in_isr,
            "out_since_ms": None if in_isr else fetched,
            "why": None if in_isr else f"no fetch for {now_ms - fetched} ms",
        }


class FakeCluster:
    """Three brokers; `sample` returns what a collector would fetch now."""

    def __init__(self, partitions: int = 1, topic: str = "orders") -> None:
        self.at_ms = BEGAN_MS
        self.alive = {1, 2, 3}
        self.silent: set[int] = set()
        self.controller = 1
        self.partitions = [FakePartition(topic, number) for number in range(partitions)]
        self.losses: dict[int, list[dict[str, Any]]] = {1: [], 2: [], 3: []}
        self.broker_epochs = {1: 11, 2: 12, 3: 13}

    @property
    def now_ms(self) -> int:
        """The brokers' monotonic clock."""
        return self.at_ms - BEGAN_MS + UPTIME_MS

    def tick(self, ms: int) -> None:
        """Let time pass; followers that run fetch."""
        self.at_ms += ms
        for each in self.partitions:
            for broker in self.alive - self.silent:
                each.last_fetch_ms[broker] = self.now_ms - 100

    def produce(self, partition: int, count: int) -> None:
        each = self.partitions[partition]
        for broker in each.isr:
            each.ends[broker] += count
        each.high_watermark = min((each.ends[broker] for broker in each.isr), default=0)

    def lose(self, broker: int, partition: int, start: int, end: int, high_watermark: int) -> None:
        each = self.partitions[partition]
        loss = {
            "topic": each.topic,
            "partition": partition,
            "leader_epoch": each.epoch,
            "start": start,
            "end": end,
            "high_watermark": high_watermark,
            "committed": max(0, min(end, high_watermark) - start),
            "restarted_at": None,
            "now_ms": self.now_ms - 300,
        }
        self.losses[broker] = [*self.losses[broker], loss]

    def states(self) -> dict[int, dict[str, Any]]:
        return {broker: self._state(broker) for broker in sorted(self.alive - self.silent)}

    def _state(self, broker: int) -> dict[str, Any]:
        losses = self.losses[broker]
        return {
            "broker_id": broker,
            "broker_epoch": self.broker_epochs[broker],
            "acting": True,
            "detached": False,
            "controller": self.controller,
            "is_controller": broker == self.controller,
            "controller_epoch": 1,
            "revision": 7,
            "now_ms": self.now_ms,
            "partitions": [each.state(broker, self.now_ms) for each in self.partitions],
            "scrub": {"verified_bytes": 0, "passes": 0, "last_pass_ms": None},
            "losses": {"count": len(losses), "recent": deepcopy(losses)},
            "unclean_elections": [],
        }

    def metadata(self) -> ClusterMetadata:
        topics: dict[str, TopicMetadata] = {}
        for each in self.partitions:
            topic = topics.setdefault(each.topic, TopicMetadata(each.topic, 0, TOPIC_ID, False, {}))
            topic.partitions[each.partition] = each.metadata(self.alive)
        brokers = {b: BrokerAddress(b, "localhost", 9091 + b, None) for b in sorted(self.alive)}
        return ClusterMetadata("c1", self.controller, brokers, topics)


def with_sampled_times(states: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return states as a store returns them: fetches of the last two seconds are just now."""
    found = deepcopy(states)
    for state in found.values():
        for replica in state["partitions"]:
            for each in replica["followers"]:
                for name in ("last_fetch_ms", "last_caught_up_ms"):
                    if state["now_ms"] - each[name] <= 2_000:
                        each[name] = state["now_ms"]
                each["lag_ms"] = state["now_ms"] - each["last_caught_up_ms"]
                if each["why"]:
                    each["why"] = f"no fetch for {state['now_ms'] - each['last_fetch_ms']} ms"
    return found
