"""When the nemesis calls a cluster healthy again, on a cluster that only answers probes."""

from typing import Any, cast

from tidelog.apps.verify.nemesis.faults import Nemesis
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.shell.supervisor.metadata_probe import MetadataView, PartitionView

TOPIC = "t"
END = 100


class AnsweringCluster:
    """Broker 1 leads the only partition; all replicas are in the ISR."""

    ids = (1, 2, 3)

    def __init__(self, high_watermarks: list[int]) -> None:
        self._high_watermarks = high_watermarks
        """The high watermark of the leader, by probe; the last one stays."""
        self._end = END

    def metadata(self, _broker: int, _topics: list[str], _timeout_s: float) -> MetadataView:
        brokers = dict.fromkeys(self.ids, ("", 0))
        partitions = {0: PartitionView(1, self.ids, self.ids)}
        return MetadataView(brokers=brokers, controller_id=1, topics={TOPIC: partitions})

    def describe_state(self, broker: int, _topic: str, _timeout_s: float) -> dict[str, Any]:
        replica = {"partition": 0, "role": "follower", "log_end_offset": 0, "high_watermark": 0}
        if broker == 1:
            self._end += 1  # producers write all the time
            replica |= {"role": "leader", "log_end_offset": self._end}
            replica["high_watermark"] = self._high_watermarks[0]
            if len(self._high_watermarks) > 1:
                del self._high_watermarks[0]
        return {"acting": True, "partitions": [replica]}


class Clock:
    """A clock that moves only while the nemesis waits."""

    def __init__(self) -> None:
        self.ticks = 0

    def hold(self, seconds: float, _what: str) -> None:
        self.ticks += int(seconds * 10_000)


def nemesis(*high_watermarks: int) -> tuple[Nemesis, Clock]:
    clock = Clock()
    cluster = cast("LocalCluster", AnsweringCluster([*high_watermarks]))
    return Nemesis(cluster, TOPIC, lambda: clock.ticks, clock.hold), clock


def test_in_sync_replicas_that_receive_nothing_are_not_healthy() -> None:
    stalled, _ = nemesis(END)
    assert not stalled.await_health(5.0, "")


def test_a_cluster_is_healthy_when_its_followers_receive_records_again() -> None:
    stalled = [END] * 20
    recovering, clock = nemesis(*stalled, END + 10)
    assert recovering.await_health(60.0, "")
    assert clock.ticks > 0


def test_a_cluster_whose_followers_have_all_records_is_healthy_at_once() -> None:
    healthy, clock = nemesis(END + 1000)
    assert healthy.await_health(5.0, "")
    assert clock.ticks == 0
