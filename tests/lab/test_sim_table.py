"""The simulator's oracle of the compacted topic."""

from collections.abc import Callable

import pytest

from tidelog.core.controller.events import ElectionType
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.replication.partition import Partition
from tidelog.lab.sim.clients.producers import COMPACTED
from tidelog.lab.sim.machine.network import LinkConditions
from tidelog.lab.sim.machine.process import Process
from tidelog.lab.sim.simulation import Simulation
from tidelog.lab.sim.swarm import draw_plan

PATIENCE_MS = 20_000


def calm_simulation(seed: int) -> Simulation:
    """Return a cluster of three brokers without faults, in which clients write only the table."""
    plan = draw_plan(seed)
    plan.brokers, plan.replication_factor, plan.min_insync_replicas = 3, 3, 2
    plan.conditions = LinkConditions(1, 1)
    plan.compacted, plan.groups, plan.transactional_ids, plan.late_topics = True, False, 0, False
    plan.actions, plan.software, plan.two_directories = [], (), False
    simulation = Simulation(plan)
    for process in simulation.site.brokers.values():
        process.start()
    return simulation


def partition_on(process: Process) -> Partition | None:
    """Return the table's partition on this broker."""
    replica = None if process.node is None else process.node.replicas.get(COMPACTED)
    return None if replica is None else replica.partition


def leader_of(simulation: Simulation) -> Process | None:
    for process in simulation.site.brokers.values():
        partition = partition_on(process)
        if partition is not None and partition.is_leader and not process.paused:
            return process
    return None


def await_that(simulation: Simulation, condition: Callable[[], bool]) -> bool:
    """Let time pass until the condition holds; return False if it does not within the bound."""
    world = simulation.world
    end = world.now_ms + PATIENCE_MS
    while not condition():
        if world.now_ms >= end:
            return False
        world.run_until(world.now_ms + 1)
    return True


def commits_when_deposed(seed: int) -> bool:
    """Pause a leader until a fetch and the election of another leader wait for it, and resume it.

    Return whether the leader committed records and was deposed in one step. Whatever it committed,
    the oracle must have noted.
    """
    simulation = calm_simulation(seed)
    table = simulation.oracle.table
    assert table is not None
    assert await_that(simulation, lambda: table.end > 0)
    first = leader_of(simulation)
    assert first is not None
    first.kill()
    assert await_that(simulation, lambda: leader_of(simulation) not in (None, first))
    leader = leader_of(simulation)
    assert leader is not None
    partition = partition_on(leader)
    assert partition is not None
    first.start()

    def every_replica_has_uncommitted_records() -> bool:
        ends = [
            (each.log_end_offset, each.durable_end_offset)
            for each in map(partition_on, simulation.site.brokers.values())
            if each is not None
        ]
        return (
            first.id in partition.isr.members
            and set(ends) == {(partition.log_end_offset,) * 2}
            and partition.high_watermark < partition.log_end_offset
        )

    if not await_that(
        simulation, lambda: not partition.is_leader or every_replica_has_uncommitted_records()
    ):
        return False
    before = partition.high_watermark
    leader.pause()
    simulation.world.run_until(simulation.world.now_ms + 20)
    key = PartitionKey(simulation.plan.table_id, 0)
    simulation.admin.elect(ElectionType.PREFERRED, (key,))
    simulation.world.run_until(simulation.world.now_ms + 50)
    known = table.end
    leader.resume()
    assert table.end >= partition.high_watermark
    return not partition.is_leader and before == known < partition.high_watermark


def test_records_committed_in_the_step_that_deposes_the_leader_count_as_committed() -> None:
    """Seed 1211: a slow disk let a follower's last fetch and the next leader's election wait."""
    if not any(commits_when_deposed(seed) for seed in range(60)):
        pytest.fail("no leader committed records in the step that deposed it")
