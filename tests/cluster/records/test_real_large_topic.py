"""A topic of two thousand partitions is created and deleted while other topics are served."""

import time
from functools import partial
from itertools import count
from pathlib import Path

from real_cluster import LONG_SESSIONS, PATIENCE_S, Sent, eventually, send_all

from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.administration.topics import NewTopic, create_topics, delete_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

COUNT = 2000


def folders(cluster: LocalCluster, topic: str) -> int:
    """Return the folders of the topic's logs on disk, without those that were dropped."""
    names = (path.name for path in Path(cluster.log_dir(1)).iterdir())
    return sum(name.startswith(f"{topic}-") and not name.endswith("-delete") for name in names)


def send(sent: Sent, value: bytes) -> None:
    """Send records over an existing connection."""
    sent.send(value)
    sent.settle()
    assert value in sent.acknowledged


def test_other_topics_are_served_while_a_large_one_is_created_and_deleted() -> None:
    """A record is acknowledged before all logs are made, and before all are dropped.

    This test may get no CPU until the broker is done, so it may need several large topics.
    """
    with LocalCluster(brokers=1, settings=LONG_SESSIONS) as cluster:
        small = Sent(cluster.bootstrap, "small")
        served_while_made = served_while_dropped = False
        give_up = time.monotonic() + PATIENCE_S
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, "small", 1, 1)
            send(small, b"before")
            for number in count():
                large = f"large-{number}"
                # Without a wait for its leaders, which takes a part of the time that is looked at.
                [made] = create_topics(client, [NewTopic(large, COUNT, 1)])
                assert made.outcome.holds, made
                send(small, b"while %d is made" % number)
                served_while_made |= folders(cluster, large) < COUNT
                eventually(partial(has_folders, cluster, large, COUNT), "all logs")
                for partition in (0, COUNT // 2, COUNT - 1):
                    send_all(cluster.bootstrap, large, [b"first"], partition)
                [deleted] = delete_topics(client, [large])
                assert not deleted.error, deleted
                send(small, b"while %d is deleted" % number)
                served_while_dropped |= folders(cluster, large) > 0
                eventually(partial(has_folders, cluster, large, 0), "all dropped")
                if served_while_made and served_while_dropped:
                    break
                assert time.monotonic() < give_up, (served_while_made, served_while_dropped)
        assert cluster.is_running(1)


def has_folders(cluster: LocalCluster, topic: str, wanted: int) -> bool:
    return folders(cluster, topic) == wanted
