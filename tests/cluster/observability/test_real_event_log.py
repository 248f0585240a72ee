"""A broker's log reports failed brokers, the controller, its leaderships and its recovery."""

from pathlib import Path

from real_cluster import PATIENCE_S, eventually, partition_dir

from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster


def test_the_death_of_a_broker_is_in_the_others_logs() -> None:
    with LocalCluster(brokers=3) as cluster:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, "orders", 1, 3)
            leader = client.leader("orders", 0).leader
        left = [broker for broker in cluster.ids if broker != leader]
        cluster.kill(leader)
        wanted = [f"broker {leader} has failed or left; alive: {left[0]}, {left[1]}"] * 2
        wanted += ["is the controller, epoch", "leads 1 of its 1 partitions"]

        def is_logged() -> bool:
            logs = [Path(cluster.log_path(broker)).read_text() for broker in left]
            text = "\n".join(logs)
            return all(wanted[0] in log for log in logs) and all(line in text for line in wanted)

        eventually(is_logged, f"the logs of brokers {left} contain {wanted}")


def test_the_log_reports_recovery_of_damaged_logs_only() -> None:
    with LocalCluster(brokers=1) as cluster:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, "orders", 1, 1)
            create_topic(client, "bills", 1, 1)
        folder = partition_dir(cluster, 1, "orders")
        files = [each / f"{0:020d}.timeindex" for each in (folder, folder.parent / "bills-0")]
        eventually(lambda: all(file.exists() for file in files), "the logs are created")
        cluster.kill(1)
        (folder / f"{0:020d}.index").unlink()
        (folder / f"{0:020d}.timeindex").unlink()
        (folder / f"{0:020d}.timeindex").mkdir()
        with (folder / f"{0:020d}.log").open("ab") as file:
            file.write(b"torn")
        cluster.start_broker(1)
        text = Path(cluster.log_path(1)).read_text()
        index, times, log = (f"orders-0/{0:020d}.{kind}" for kind in ("index", "timeindex", "log"))
        assert f"INFO  broker 1: {index}: rebuilt from the log" in text
        assert f"WARN  broker 1: {times} is not a file: moved to {times}.damaged" in text
        assert f"WARN  broker 1: {log}: truncated from 4 to 0 bytes" in text
        assert not [line for line in text.splitlines() if "bills-0/" in line]
