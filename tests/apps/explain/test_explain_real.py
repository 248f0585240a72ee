"""`tidelog explain` on real brokers."""

import json
from typing import Any

import confluent_kafka
from click.testing import CliRunner, Result
from real_cluster import PATIENCE_S, eventually, leader_of, make_topic, send_all

from tidelog.apps.cli.main import cli
from tidelog.core.types import TopicPartition
from tidelog.shell.client.administration.partitions import alter_reassignments
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster


def explained(bootstrap: str, name: str = "orders/0") -> dict[str, Any]:
    """Return the first explanation that brokers give in time, on a machine that may be busy."""
    words = ["explain", name, "--bootstrap", bootstrap, "--timeout", "1", "--format", "json"]

    def ask() -> Result | None:
        found = CliRunner().invoke(cli, words)
        return found if found.stderr == "" else None

    found = eventually(ask, "the brokers respond")
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (found.exit_code == 0)
    return document


def said(bootstrap: str, topic: str, text: str) -> dict[str, Any] | None:
    """Return the explanation of this topic with this text, if there is one now."""
    found = [
        each
        for each in explained(bootstrap)["explain"]
        if each["topic"] == topic and text in each["text"]
    ]
    return found[0] if found else None


def test_paused_follower_and_killed_leader() -> None:
    with LocalCluster(brokers=3) as running:
        where = running.bootstrap
        make_topic(where, "orders", 1, 3, {"min.insync.replicas": "2"})
        send_all(where, "orders", [b"%d" % n for n in range(10)], conf={"acks": "all"})
        leader = leader_of(running, "orders")
        eventually(
            lambda: said(where, "high-watermark", "Every record is committed"), "all is committed"
        )

        def without_problem() -> Result | None:
            shown = CliRunner().invoke(cli, ["explain", "orders/0", "--bootstrap", where])
            return shown if shown.exit_code == 0 else None

        shown = eventually(without_problem, "there is no problem")
        assert "If the leader died now" in shown.stdout
        assert shown.stdout.splitlines()[-1] == "✓ no problem found"

        paused, next_leader = sorted({1, 2, 3} - {leader})
        running.pause(paused)
        send_all(where, "orders", [b"more"], conf={"acks": "1"})
        eventually(
            lambda: said(where, "isr", f"Broker {paused} is out of the ISR"), "it left the ISR"
        )
        text = f"broker {next_leader} (in the ISR) would lead in epoch"
        after = eventually(lambda: said(where, "election", text), "who would lead is explained")
        assert "acks=all would be rejected" in after["text"]

        running.kill(leader)
        under = eventually(
            lambda: said(where, "isr", "The ISR has 1 replica, min.insync.replicas is 2"),
            "one replica is in sync",
        )
        assert under["severity"] == "bad"
        assert leader_of(running, "orders") == next_leader
        offline = said(where, "election", "no replica could be elected")
        assert offline is None or offline["severity"] == "bad"
        assert not explained(where)["holds"]

        running.resume(paused)
        running.start_broker(leader, timeout_s=PATIENCE_S)
        eventually(lambda: said(where, "isr", "All 3 replicas are in sync"), "all are in sync")


def test_reassignment_to_a_broker_that_hangs() -> None:
    with LocalCluster(brokers=3) as running:
        where = running.bootstrap
        make_topic(where, "orders", 1, 2)
        send_all(where, "orders", [b"%d" % n for n in range(10)], conf={"acks": "all"})
        with Cluster(where) as client:
            old = client.refresh(["orders"]).topics["orders"].partitions[0].replicas
            [new] = {1, 2, 3} - set(old)
            running.pause(new)

            def begun() -> bool:
                """If the broker that hangs is the controller, the first requests time out."""
                client.refresh()
                wanted = {TopicPartition("orders", 0): [old[0], new]}
                return all(each.holds for each in alter_reassignments(client, wanted).values())

            eventually(begun, "the reassignment begins")
        text = f"A reassignment adds broker {new} and removes broker {old[1]}."
        found = eventually(lambda: said(where, "reassignment", text), "it is explained")
        assert f"Broker {new} is not in the ISR yet" in found["detail"]
        assert explained(where)["partition"]["reassignment"] == {
            "adding": [new],
            "removing": [old[1]],
        }
        running.resume(new)
        eventually(lambda: explained(where)["partition"]["reassignment"] is None, "it ends")
        assert said(where, "reassignment", "") is None


def test_kafka_is_explained_as_far_as_its_protocol_reports() -> None:
    mock = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    mock.produce("orders", b"x", partition=0)
    mock.flush(PATIENCE_S)
    brokers = mock.list_topics(timeout=PATIENCE_S).brokers.values()
    where = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def known() -> dict[str, Any] | None:
        """A leader that responds late is explained as one that did not respond."""
        document = explained(where)
        topics = {each["topic"] for each in document["explain"]}
        return document if {"leader", "high-watermark", "election"} <= topics else None

    document = eventually(known, "what the protocol reports is explained")
    assert document["missing"].startswith("not a Tidelog cluster")
    mock.flush(1)  # the mock lives as long as its producer


def test_name_must_have_a_partition() -> None:
    found = CliRunner().invoke(cli, ["explain", "orders"])
    assert found.exit_code == 2
    assert "'orders' is not in the form TOPIC/PARTITION" in found.stderr
