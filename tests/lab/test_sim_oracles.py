"""The simulator in a calm cluster: what its oracles note, what it may damage, and its clients."""

from collections.abc import Callable

import pytest

from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import ElectionType
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.replication.partition import Partition
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.sim.clients.producers import COMPACTED
from tidelog.lab.sim.machine.damage import segments
from tidelog.lab.sim.machine.network import LinkConditions
from tidelog.lab.sim.machine.process import Process
from tidelog.lab.sim.simulation import Simulation
from tidelog.lab.sim.swarm import draw_plan

PATIENCE_MS = 20_000
ORDINARY = TopicPartition("t", 0)
SEEDS = range(60)


class CalmCluster:
    """Three simulated brokers without faults. Clients write to a compacted and another topic."""

    def __init__(self, seed: int, name: TopicPartition) -> None:
        plan = draw_plan(seed)
        plan.brokers, plan.replication_factor, plan.min_insync_replicas = 3, 3, 2
        plan.conditions, plan.actions, plan.unclean = LinkConditions(1, 1), [], False
        plan.compacted, plan.groups, plan.transactional_ids = True, False, 0
        plan.late_topics, plan.two_directories, plan.software = False, False, ()
        self.name = name
        self.simulation = Simulation(plan)
        self.world = self.simulation.world
        self.brokers = list(self.simulation.site.brokers.values())
        for process in self.brokers:
            process.start()
        self.world.at(300, self.simulation.admin.create_topic)
        self.await_that(lambda: self.leader() is not None)
        self.produce()
        self.await_that(lambda: self.noted() > 0)

    def produce(self) -> None:
        """Keep writing a record to the other topic every 40 ms."""
        self.simulation.producers[0].produce(ORDINARY, 1)
        self.world.after(40, self.produce)

    def noted(self) -> Offset:
        """Return up to which offset the oracle has noted records as committed."""
        oracle = self.simulation.oracle
        if self.name == COMPACTED:
            assert oracle.table is not None
            return oracle.table.end
        return len(oracle.truths[self.name].committed)

    def partition(self, process: Process) -> Partition | None:
        replica = None if process.node is None else process.node.replicas.get(self.name)
        return None if replica is None else replica.partition

    def leader(self) -> Process | None:
        for process in self.brokers:
            partition = self.partition(process)
            if partition is not None and partition.is_leader:
                return process
        return None

    def run(self, ms: int) -> None:
        self.world.run_until(self.world.now_ms + ms)

    def await_that(self, condition: Callable[[], bool]) -> None:
        end = self.world.now_ms + PATIENCE_MS
        while not condition():
            assert self.world.now_ms < end, "it did not happen"
            self.run(1)

    def pause_before_a_commit(self) -> tuple[Process, Partition] | None:
        """Pause the leader until a fetch waits for it that commits records. Return None if it
        loses its leadership before that."""
        leader = self.leader()
        assert leader is not None
        partition = self.partition(leader)
        assert partition is not None

        def is_about_to_commit() -> bool:
            end = partition.log_end_offset
            others = [each for each in map(self.partition, self.brokers) if each is not None]
            return (
                len(partition.isr.members) == 3
                and partition.high_watermark < end
                and {(e.log_end_offset, e.durable_end_offset) for e in others} == {(end, end)}
            )

        self.await_that(lambda: not partition.is_leader or is_about_to_commit())
        if not partition.is_leader:
            return None
        leader.pause()
        self.run(20)
        return leader, partition


def commits_when_deposed(name: TopicPartition, seed: int) -> bool:
    """Let an election of another leader wait behind a fetch. Return whether the leader committed
    records and was deposed in one step."""
    cluster = CalmCluster(seed, name)
    first = cluster.leader()
    assert first is not None
    first.kill()
    cluster.await_that(lambda: cluster.leader() not in (None, first))
    first.start()
    found = cluster.pause_before_a_commit()
    if found is None:
        return False
    leader, partition = found
    plan, before = cluster.simulation.plan, cluster.noted()
    topic_id = plan.table_id if name == COMPACTED else plan.topic_id
    cluster.simulation.admin.elect(ElectionType.PREFERRED, (PartitionKey(topic_id, 0),))
    cluster.run(50)
    leader.resume()
    assert cluster.noted() >= partition.high_watermark
    return not partition.is_leader and before < partition.high_watermark


@pytest.mark.parametrize("name", [COMPACTED, ORDINARY], ids=str)
def test_records_that_a_leader_commits_in_the_step_that_deposes_it(name: TopicPartition) -> None:
    """Seed 1211: a slow disk let a follower's last fetch and the next leader's election wait."""
    if not any(commits_when_deposed(name, seed) for seed in SEEDS):
        pytest.fail("no leader committed records in the step that deposed it")


def commits_when_its_disk_fails(name: TopicPartition, seed: int) -> bool:
    """Let the error of a flush wait behind a fetch. Return whether the leader committed records."""
    cluster = CalmCluster(seed, name)
    found = cluster.pause_before_a_commit()
    if found is None:
        return False
    leader, partition = found
    before = cluster.noted()
    leader.receive(on.FlushCompleted, 0, "input/output error")
    leader.resume()
    assert leader.halted is not None
    assert cluster.noted() >= partition.high_watermark
    return before < partition.high_watermark


@pytest.mark.parametrize("name", [COMPACTED, ORDINARY], ids=str)
def test_records_that_a_leader_commits_in_the_step_in_which_its_disk_fails(
    name: TopicPartition,
) -> None:
    """Seed 3001645: a write failed right after a follower's fetch, which got its response."""
    if not any(commits_when_its_disk_fails(name, seed) for seed in SEEDS):
        pytest.fail("no leader committed records in the step in which its disk failed")


def test_an_administrator_takes_no_later_response_for_that_of_a_creation_it_did_not_send() -> None:
    """Seed 3004504: no broker was up, and the next request got the same number."""
    simulation = Simulation(draw_plan(0))
    admin = simulation.admin
    admin.create_topic()
    admin.answered(1, TopicAnswer(ErrorCode.NONE))
    assert not admin.topic_made
    for process in simulation.site.brokers.values():
        process.start()
    admin.create_topic()
    admin.answered(1, TopicAnswer(ErrorCode.NONE))
    assert admin.topic_made


def test_a_replica_may_be_damaged_only_while_another_one_really_has_its_records() -> None:
    """Seed 3003780: the other one had lost them in a power failure, and its broker was down."""
    cluster = CalmCluster(0, ORDINARY)
    leader, oracle = cluster.leader(), cluster.simulation.oracle
    assert leader is not None
    others = [each for each in cluster.brokers if each is not leader]
    cluster.await_that(lambda: {oracle.log_end(b, ORDINARY) for b in cluster.brokers} == {5})
    for process in others:
        process.kill()
    assert oracle.may_damage(leader, ORDINARY), "a killed process loses nothing"
    for number, process in enumerate(others):
        for path in segments(process.disk, ORDINARY):
            process.disk.truncate(path, process.disk.size(path) - 1)
        assert oracle.may_damage(leader, ORDINARY) is (number == 0)
