"""A topic of two thousand partitions is created and deleted while other topics are served."""

from pathlib import Path

from real_cluster import Sent, eventually, send_all

from tidelog.shell.client.admin import create_topic, delete_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

COUNT = 2000
PATIENCE_S = 120.0


def folders(cluster: LocalCluster, ending: str = "") -> int:
    """Return the folders of the large topic's logs on disk."""
    names = (path.name for path in Path(cluster.log_dir(1)).iterdir())
    return sum(name.startswith("large") and name.endswith(ending) for name in names)


def send(sent: Sent, value: bytes) -> None:
    """Send records over an existing connection."""
    sent.send(value)
    sent.settle()
    assert value in sent.acknowledged


def test_other_topics_are_served_while_a_large_one_is_created_and_deleted() -> None:
    with LocalCluster(brokers=1) as cluster:
        small = Sent(cluster.bootstrap, "small")
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, "small", 1, 1)
            send(small, b"before")
            create_topic(client, "large", COUNT, 1)
            send(small, b"while it is made")
            assert folders(cluster) < COUNT, "the record was acknowledged before all was made"
            eventually(lambda: folders(cluster) == COUNT, "all logs", PATIENCE_S)
            for partition in (0, COUNT // 2, COUNT - 1):
                send_all(cluster.bootstrap, "large", [b"first"], partition)
            delete_topic(client, "large")
            send(small, b"while it is deleted")
            assert folders(cluster, "-delete") < COUNT, "acknowledged before all was dropped"
            eventually(lambda: folders(cluster, "-delete") == COUNT, "all dropped", PATIENCE_S)
        assert cluster.is_running(1)
