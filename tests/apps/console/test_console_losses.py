"""The losses page's data on a real cluster: records with acks=1 that an unclean election loses."""

from pathlib import Path

from console_client import CALM, PATIENCE_S, Client, Json, serve

from tidelog.apps.console.target import RemoteCluster
from tidelog.core.record.record import Record
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

CONFIGS = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}


def await_partition(pages: Client, leader: int, isr: list[int]) -> None:
    def reached(data: Json) -> bool:
        found = data["partition"]
        return bool(found["leader"] == leader and sorted(found["isr"]) == isr)

    pages.until("partitions/orders/0", reached)


def test_losses_list_records_with_acks_1_that_an_unclean_election_lost(tmp_path: Path) -> None:
    with (
        LocalCluster(brokers=3, settings=CALM) as running,
        serve(RemoteCluster(running.bootstrap), tmp_path) as pages,
    ):
        nothing: Json = {"losses": [], "unread": {}, "topic_problem": None}
        pages.until("losses", lambda data: data == nothing)
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.create_topic(client, "orders", 1, 2, CONFIGS)
            known = client.refresh(["orders"]).topics["orders"].partitions[0]
            old, (new,) = known.leader, set(known.replicas) - {known.leader}
            Producer(client).append("orders", 0, [Record(None, b"both have it", 1)])
            running.kill(new)
            await_partition(pages, old, [old])
            unsafe = Producer(client, acks=1, idempotent=False)
            unsafe.append("orders", 0, [Record(None, b"one", 1)] * 3)
        running.kill(old)
        running.start_broker(new)
        await_partition(pages, new, [new])
        pages.until("losses", lambda data: list(data["unread"]) == [f"broker {old}"])
        running.start_broker(old)
        await_partition(pages, new, sorted([old, new]))

        found = pages.until("losses", lambda data: data["losses"][1:] and not data["unread"])
        election, loss = found["losses"]
        assert (election["event"], election["leader"]) == ("unclean_election", new)
        assert (loss["topic"], loss["partition"], loss["broker"]) == ("orders", 0, old)
        assert (loss["event"], loss["cause"]) == ("loss", "unclean_election")
        assert (loss["start"], loss["end"], loss["records"]) == (1, 4, 3)
        assert (loss["committed"], loss["acked_all"], loss["not_acked"]) == (0, 0, 0)
        # The last batch before a kill may be unknown.
        assert loss["acked_1"] + loss["acks_unknown"] == 3
        pages.until("losses?topic=orders", lambda data: data["losses"] == [election, loss])
        assert pages.read("losses?topic=others")["losses"] == []
        pages.until(f"losses?since={loss['at_ms']}", lambda data: loss in data["losses"])
        assert pages.read(f"losses?since={loss['at_ms'] + 1}")["losses"] == []
        assert pages.get("/api/losses?since=yesterday").status == 400
