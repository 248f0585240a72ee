"""Carry out the actions of a plan: one method for each kind."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tidelog.core.controller.events import ElectionType, UpgradeType
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.node import events as on
from tidelog.core.storage.layout import partition_dir
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.sim.clients.admin import SimAdmin
from tidelog.lab.sim.clients.producers import SimProducer
from tidelog.lab.sim.machine.damage import (
    DAMAGES,
    DECAYS,
    WRONG_CHECKPOINTS,
    Copies,
    copy_checkpoints,
    damage_checkpoint,
    damage_log,
    decay_log,
)
from tidelog.lab.sim.machine.network import STORE
from tidelog.lab.sim.machine.old_copy import OLD_COPY, OldCopy
from tidelog.lab.sim.machine.process import Process, Site
from tidelog.lab.sim.machine.switch_fault import SWITCH_FAULTS, SWITCH_INTERRUPTED
from tidelog.lab.sim.oracle.feature_levels import software
from tidelog.lab.sim.oracle.moves import BEGUN, FINISHED, FINISHED_AT_START, INTERRUPTED
from tidelog.lab.sim.oracle.transactions import TransactionOracle
from tidelog.lab.sim.swarm import KILL_AT_OUTCOME, Action, Plan

OUTCOME_INTERRUPTED = "killed at an outcome"
KINDS = (
    "message delayed",
    "message dropped",
    "message duplicated",
    "message reordered",
    "link cut one way",
    "link cut both ways",
    "broker isolated",
    "broker cut from store",
    "process killed",
    "process restarted",
    "process paused",
    "process shut down",
    "restart while idle",
    "disturbed while idle",
    "clock jumped",
    "wall clock set",
    OUTCOME_INTERRUPTED,
    "power lost",
    "unsynced bytes forgotten",
    "names forgotten",
    "torn at power failure",
    "torn write",
    "killed between writes",
    "bit flipped",
    "bytes zeroed",
    "disk full",
    "disk error",
    "slow sync",
    "directory failed",
    "directory error",
    "directory repaired",
    BEGUN,
    FINISHED,
    INTERRUPTED,
    SWITCH_INTERRUPTED,
    FINISHED_AT_START,
    "folder removed",
    *DAMAGES,
    *WRONG_CHECKPOINTS,
    *DECAYS,
    OLD_COPY,
    "read failed",
    "sync lied",
    "power lost after lies",
    "replicas damaged at a time",
    "broker unregistered",
    "software replaced",
    "feature level changed",
    "store unavailable",
    "outcome unknown, applied",
    "outcome unknown, applied late",
    "outcome unknown, not applied",
    "session expired",
    "watch cut",
    "watch lagged",
    "store compacted",
    "store went back",
    "store away",
    "store leader changed",
    "silent session ended",
)
"""Every kind of fault that `World.count` counts."""

_DAY_MS = 86_400_000
WRONG_CLOCKS_MS = (8 * _DAY_MS, 8 * _DAY_MS, -8 * _DAY_MS, 90_000)
"""How far a wrongly set wall clock is ahead. All are jumps (wall_clock.py)."""
OUTCOME_MS = 12
"""The longest time between an outcome and a broker's death: markers take a few milliseconds."""
CHASE_MS = 50
CHASE_TRIES = 80
STOP_TRIES = 60
COPY_AGE_MS = 700
"""The age of the copy that replaces a checkpoint."""
STORE_BACK_MS = 700
"""How long brokers see the earlier store before an operator restores the right one."""

DuringMove: TypeAlias = Callable[[Process, Action, TopicPartition], None]
SWITCH = "switch"
DURING_MOVES = (
    *("none", "none", SWITCH, SWITCH, SWITCH, SWITCH),
    *("kill", "lose-power", "pause", "isolate", "isolate", "delete-records", "end"),
)
"""What happens during a move: `SWITCH` interrupts it in the middle of its last step."""


class Faults:
    """Carries out the plan's actions until `stopped` is set."""

    def __init__(
        self,
        site: Site,
        plan: Plan,
        producers: list[SimProducer],
        admin: SimAdmin,
        transactions: TransactionOracle | None,
    ) -> None:
        self.stopped = False
        self._site = site
        self._world = site.world
        self._plan = plan
        self._producers = producers
        self._admin = admin
        self._transactions = transactions
        self._during: dict[str, DuringMove] = {
            "kill": self._act_during_move(self._kill),
            "lose-power": self._act_during_move(self._lose_power),
            "pause": self._act_during_move(self._pause),
            "isolate": self._act_during_move(self._isolate),
            "delete-records": self._delete_during_move,
            "end": self._end_move,
        }
        self._do: dict[str, Callable[[Process, Action], None]] = {
            "produce": self._produce,
            "kill": self._kill,
            KILL_AT_OUTCOME: self._kill_at_outcome,
            "chase-leader": self._chase_leader,
            "lose-power": self._lose_power,
            "lose-power-everywhere": self._lose_power_everywhere,
            "shut-down": self._shut_down,
            "pause": self._pause,
            "jump-clock": self._jump_clock,
            "set-clock": self._set_clock,
            "set-clocks-everywhere": self._set_clocks_everywhere,
            "cut-one-way": self._cut_one_way,
            "cut-both-ways": self._cut_both_ways,
            "isolate": self._isolate,
            "cut-from-store": self._cut_from_store,
            "clog": self._clog,
            "rain": self._rain,
            "fill-disk": self._fill_disk,
            "break-disk": self._break_disk,
            "die-in-write": self._die_in_write,
            "fail-directory": self._fail_directory,
            "move-replica": self._move_replica,
            "slow-disk": self._slow_disk,
            "lose-folder": self._lose_folder,
            "lose-folders-everywhere": self._lose_folders_everywhere,
            "damage-log": self._damage_log,
            "damage-log-everywhere-down": self._damage_log_everywhere_down,
            "damage-checkpoint": self._damage_checkpoint,
            "damage-checkpoint-everywhere-down": self._damage_checkpoint,
            "damage-stopped": self._damage_stopped,
            "put-back-old-copy": self._put_back_old_copy,
            "decay": self._decay,
            "lie": self._lie,
            "damage-two": self._damage_two,
            "cut-watch": self._cut_watch,
            "compact-store": self._compact_store,
            "store-goes-back": self._store_goes_back,
            "store-away": self._store_goes_away,
            "store-leader": self._store_leader_changes,
            "elect": self._elect,
            "reassign": self._reassign,
            "delete-records": self._delete_records,
            "unregister": self._unregister,
            "install": self._install,
            "update-features": self._update_features,
            "lag-watch": self._lag_watch,
        }

    def plan_all(self) -> None:
        for action in self._plan.actions:
            self._world.at(action.at_ms, self.act, action)

    def act(self, action: Action) -> None:
        if not self.stopped:
            self._do[action.kind](self._target(action), action)

    def _target(self, action: Action) -> Process:
        if action.kind == "produce":
            return self._site.brokers[1]
        if action.target > 0:
            return self._site.brokers[action.target]
        partition = -1 - action.target
        leader = self._leader(partition)
        return leader or self._site.brokers[1 + partition % len(self._site.brokers)]

    def _leader(self, partition: int) -> Process | None:
        """Return a broker that considers itself the leader and is not paused."""
        for process in self._site.brokers.values():
            node = process.node
            replica = None if node is None else node.replicas.get(TopicPartition("t", partition))
            if replica is not None and replica.partition.is_leader and not process.paused:
                return process
        return None

    # -- clients ---------------------------------------------------------------------------

    def _produce(self, _process: Process, action: Action) -> None:
        producer, count = action.amounts
        self._producers[producer].produce(TopicPartition("t", action.target), count)

    def _elect(self, _process: Process, action: Action) -> None:
        unclean = self._plan.unclean and action.amounts[2] % 2
        self._admin.elect(ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED)

    def _reassign(self, _process: Process, action: Action) -> None:
        """Move a partition to consecutive brokers; the replication factor stays."""
        plan = self._plan
        first = action.amounts[1]
        replicas = tuple(
            1 + (first + step) % plan.brokers for step in range(plan.replication_factor)
        )
        partition = action.amounts[2] % plan.partitions
        self._admin.reassign(PartitionKey(plan.topic_id, partition), replicas)

    def _delete_records(self, _process: Process, action: Action) -> None:
        partition = TopicPartition("t", action.amounts[2] % self._plan.partitions)
        self._admin.delete_records(partition, action.amounts[2] % 20)

    # -- processes -------------------------------------------------------------------------

    def _notify_of_death(self, process: Process) -> None:
        """Notify the other brokers, as when the kernel frees a dead process's lock."""
        node = process.node
        if not self._plan.proof_of_death or node is None or node.broker_epoch is None:
            return
        for other in self._site.brokers.values():
            if other is not process:
                epoch = node.broker_epoch
                self._world.after(20, other.receive, on.BrokerDied, process.id, epoch)

    def _return(self, process: Process, after_ms: int) -> None:
        self._world.after(after_ms, self._restart, process)

    def _restart(self, process: Process) -> None:
        if process.node is None:
            self._world.count("process restarted")
            process.clocks.skew_ms = max(0, process.clocks.skew_ms - 50)
            process.start()

    def _kill(self, process: Process, action: Action) -> None:
        if process.node is not None:
            self._world.count("process killed")
            self._notify_of_death(process)
            process.kill()
            self._return(process, action.amounts[0])

    def _chase_leader(self, process: Process, action: Action) -> None:
        """Kill the leader, and the next one soon after its election (as in KIP-279)."""
        partition = max(0, -1 - action.target)
        self._kill(process, action)
        self._chase(partition, action, CHASE_TRIES)

    def _chase(self, partition: int, action: Action, tries: int) -> None:
        if self.stopped or tries == 0:
            return
        leader = self._leader(partition)
        if leader is None:
            self._world.after(CHASE_MS, self._chase, partition, action, tries - 1)
        else:
            self._world.after(action.amounts[2] % 40, self._kill, leader, action)

    def _kill_at_outcome(self, _process: Process, action: Action) -> None:
        """Wait for the next outcome of a transaction, then kill its coordinator, a leader that has
        to write a marker, or both."""
        if self._transactions is not None:
            self._transactions.awaiting_outcome.append(
                lambda coordinator, partitions: self._strike(coordinator, partitions, action)
            )

    def _strike(
        self, coordinator: BrokerId, partitions: frozenset[TopicPartition], action: Action
    ) -> None:
        draw = Random(action.amounts[2])
        known = self._site.brokers[coordinator].node
        partition = (
            None if known is None else known.image.partition(*draw.choice(sorted(partitions)))
        )
        leader = None if partition is None else partition.leader
        victims = draw.choice(((coordinator,), (coordinator,), (leader,), (coordinator, leader)))
        kill = draw.choice((self._kill, self._kill, self._lose_power))
        for victim in dict.fromkeys(victims):
            if victim is not None:
                self._world.count(OUTCOME_INTERRUPTED)
                after_ms = draw.randint(0, OUTCOME_MS)
                self._world.after(after_ms, kill, self._site.brokers[victim], action)

    def _lose_power(self, process: Process, action: Action) -> None:
        process.disk.stop_lying()
        self._world.count("power lost")
        self._notify_of_death(process)
        process.lose_power()
        self._return(process, action.amounts[0])

    def _lose_power_everywhere(self, _process: Process, action: Action) -> None:
        for number, process in enumerate(self._site.brokers.values()):
            process.disk.stop_lying()
            self._world.count("power lost")
            process.lose_power()
            self._return(process, action.amounts[0] + (action.amounts[2] >> number) % 300)

    def _shut_down(self, process: Process, _action: Action) -> None:
        if process.node is not None:
            self._world.count("process shut down")
            process.receive(on.ShutdownRequested)

    def _pause(self, process: Process, action: Action) -> None:
        if process.node is not None and not process.paused:
            self._world.count("process paused")
            process.pause()
            self._world.after(action.amounts[0], process.resume)

    def _jump_clock(self, process: Process, action: Action) -> None:
        if process.node is not None:
            self._world.count("clock jumped")
            process.jump(action.amounts[0])

    def _set_clock(self, process: Process, action: Action) -> None:
        """Set a wall clock wrong for a while, also that of a broker that is down."""
        duration_ms, _, draw = action.amounts
        self._world.count("wall clock set")
        process.clocks.set(WRONG_CLOCKS_MS[draw % len(WRONG_CLOCKS_MS)])
        self._world.after(duration_ms, process.clocks.set, 0)

    def _set_clocks_everywhere(self, _process: Process, action: Action) -> None:
        for process in self._site.brokers.values():
            self._set_clock(process, action)

    # -- links -----------------------------------------------------------------------------

    def _other(self, process: Process, action: Action) -> BrokerId:
        other = action.amounts[1]
        return other if other != process.id else 1 + other % len(self._site.brokers)

    def _cut_one_way(self, process: Process, action: Action) -> None:
        self._world.count("link cut one way")
        ends = [process.id, self._other(process, action)]
        if action.amounts[2] % 2:
            ends.reverse()
        self._site.network.cut(ends[0], ends[1], action.amounts[0])

    def _cut_both_ways(self, process: Process, action: Action) -> None:
        self._world.count("link cut both ways")
        self._cut_pair(process.id, self._other(process, action), action.amounts[0])

    def _cut_pair(self, one: int, other: int, duration_ms: int) -> None:
        self._site.network.cut(one, other, duration_ms)
        self._site.network.cut(other, one, duration_ms)

    def _isolate(self, process: Process, action: Action) -> None:
        """Cut all links to other brokers, and with probability one half those to the store."""
        self._world.count("broker isolated")
        for other in self._site.brokers:
            if other != process.id:
                self._cut_pair(process.id, other, action.amounts[0])
        if action.amounts[2] % 2:
            self._cut_pair(process.id, STORE, action.amounts[0])

    def _cut_from_store(self, process: Process, action: Action) -> None:
        self._world.count("broker cut from store")
        self._cut_pair(process.id, STORE, action.amounts[0])

    def _store_goes_away(self, _process: Process, action: Action) -> None:
        self._site.store.go_away(action.amounts[0])

    def _store_leader_changes(self, _process: Process, action: Action) -> None:
        self._site.store.go_away(action.amounts[0], "store leader changed")

    def _clog(self, process: Process, action: Action) -> None:
        self._site.network.clog(process.id, self._other(process, action), action.amounts[0])

    def _rain(self, process: Process, action: Action) -> None:
        other = self._other(process, action)
        self._site.network.rain(process.id, other, action.amounts[0])
        self._site.network.rain(other, process.id, action.amounts[0])

    # -- disks -----------------------------------------------------------------------------

    def _fill_disk(self, process: Process, action: Action) -> None:
        process.disk.full_until_ms = self._world.now_ms + action.amounts[0]

    def _break_disk(self, process: Process, action: Action) -> None:
        process.disk.broken_until_ms = self._world.now_ms + action.amounts[0]

    def _fail_directory(self, process: Process, action: Action) -> None:
        """Let one of two log directories fail until an operator repairs it."""
        failing = process.directories[action.amounts[2] % 2]
        if not any(one.broken for one in process.directories):
            failing.broken = True
            self._world.count("directory failed")
            self._world.after(action.amounts[0], self._repair, process)

    def _move_replica(self, process: Process, action: Action) -> None:
        """Move a replica to the other log directory; in most cases with one of DURING_MOVES."""
        if process.node is None:
            return
        draw = Random(action.amounts[2])
        names = sorted(process.node.replicas)
        wanted = TopicPartition("t", -1 - action.target)
        name = wanted if wanted in names or not names else draw.choice(names)
        during = draw.choice(DURING_MOVES)
        if during == SWITCH:
            process.switch_fault.arm(draw.choice(SWITCH_FAULTS), draw.randrange(1 << 16))
            self._world.after(max(600, action.amounts[0]), self._repair, process)
        if process.move(name) and during in self._during:
            self._world.after(draw.randint(0, 60), self._during[during], process, action, name)

    def _end_move(self, process: Process, _action: Action, name: TopicPartition) -> None:
        """Move the replica to the directory in which it is, or back if the move has ended."""
        if not self.stopped:
            process.move(name, stay=self._world.now_ms % 2 == 0)

    def _delete_during_move(self, process: Process, action: Action, _name: TopicPartition) -> None:
        # In runs that set wall clocks, records are deleted only for their age.
        if not self.stopped and self._plan.retention_ms is None:
            self._delete_records(process, action)

    def _act_during_move(self, act: Callable[[Process, Action], None]) -> DuringMove:
        def later(process: Process, action: Action, _name: TopicPartition) -> None:
            if not self.stopped:
                act(process, action)

        return later

    def _repair(self, process: Process) -> None:
        if not self.stopped:
            self.repair_directories(process)

    def repair_directories(self, process: Process) -> None:
        """Repair a failed log directory, and restart the broker if it runs without it."""
        for directory in process.directories:
            directory.broken = False
        process.switch_fault.disarm()
        if process.node is not None and process.node.directory.offline:
            self._world.count("directory repaired")
            process.die_and_return()

    def _die_in_write(self, process: Process, action: Action) -> None:
        if process.node is not None:
            process.disk.dies_in = action.amounts[2] % 12

    def _slow_disk(self, process: Process, action: Action) -> None:
        process.disk.slow_until_ms = self._world.now_ms + action.amounts[0]

    def _lose_folder(self, process: Process, action: Action) -> None:
        """Remove a partition's folder while its broker is down."""
        self._kill(process, action)
        self._remove_folder(process, action)

    def _lose_folders_everywhere(self, _process: Process, action: Action) -> None:
        """Kill all brokers and remove a partition's folder from some of them."""
        for number, process in enumerate(self._site.brokers.values()):
            self._kill(process, action)
            if action.amounts[2] >> number & 1:
                self._remove_folder(process, action)

    def _remove_folder(self, process: Process, action: Action) -> None:
        name = TopicPartition("t", action.amounts[2] % self._plan.partitions)
        # Two replicas that lose records at the same time may lose the only copies.
        spared = self._site.observer.is_damaged(name)
        if process.disk.exists(partition_dir(name)) and not spared:
            self._world.count("folder removed")
            process.disk.remove_by_hand(partition_dir(name))
            self._site.observer.emptied(process, name)

    def _damage_log(self, process: Process, action: Action) -> None:
        """Damage one replica's files while its broker is down."""
        self._kill(process, action)
        name = TopicPartition("t", action.amounts[2] % self._plan.partitions)
        if process.node is None and self._site.observer.may_damage(process, name):
            kind = damage_log(process.disk, name, Random(action.amounts[2]))
            if kind is not None:
                self._world.count(kind)
                self._site.observer.damaged(process, name)

    def _damage_log_everywhere_down(self, process: Process, action: Action) -> None:
        """Kill all brokers and damage one replica's files."""
        for other in self._site.brokers.values():
            self._kill(other, action)
        self._damage_log(process, action)

    def _damage_checkpoint(self, process: Process, action: Action) -> None:
        """Damage one replica's checkpoints or indexes while its broker or every broker is down."""
        name = self._damaged_partition(action)
        copies = copy_checkpoints(process.disk, name)
        self._world.after(COPY_AGE_MS, self._put_checkpoint, process, action, copies)

    def _put_checkpoint(self, process: Process, action: Action, copies: Copies) -> None:
        if self.stopped:
            return
        if action.kind.endswith("everywhere-down"):
            for other in self._site.brokers.values():
                self._kill(other, action)
        self._kill(process, action)
        name = self._damaged_partition(action)
        if process.node is None and self._site.observer.may_damage(process, name):
            log_end = self._site.observer.log_end(process, name)
            draw = Random(action.amounts[2])
            kind = damage_checkpoint(process.disk, name, copies, log_end, draw)
            self._damaged(process, name, kind)

    def _damage_stopped(self, process: Process, action: Action) -> None:
        """Damage one replica's files after a clean stop of its broker."""
        copies = copy_checkpoints(process.disk, self._damaged_partition(action))
        self._shut_down(process, action)
        self._damage_once_stopped(process, action, copies, STOP_TRIES)

    def _damage_once_stopped(
        self, process: Process, action: Action, copies: Copies, tries: int
    ) -> None:
        if self.stopped or tries == 0:
            return
        if process.node is not None or process.halted is None:
            again = self._damage_once_stopped
            self._world.after(CHASE_MS, again, process, action, copies, tries - 1)
            return
        name, draw = self._damaged_partition(action), Random(action.amounts[2])
        if self._site.observer.may_damage(process, name):
            log_end = self._site.observer.log_end(process, name)
            if draw.random() < 1 / 2:
                kind = damage_log(process.disk, name, draw)
            else:
                kind = damage_checkpoint(process.disk, name, copies, log_end, draw)
            self._damaged(process, name, kind)

    def _put_back_old_copy(self, process: Process, action: Action) -> None:
        """Replace one replica's folder by an old copy while all brokers are down."""
        OldCopy(self._site, process, self._damaged_partition(action)).make(*action.amounts[:2])

    def _damaged_partition(self, action: Action) -> TopicPartition:
        return TopicPartition("t", action.amounts[2] % self._plan.partitions)

    def _damaged(self, process: Process, name: TopicPartition, kind: str | None) -> None:
        if kind is not None:
            self._world.count(kind)
            self._site.observer.damaged(process, name)

    def _decay(self, process: Process, action: Action) -> None:
        """Damage one replica's files while its broker runs."""
        name = self._damaged_partition(action)
        if process.node is not None and self._site.observer.may_damage(process, name):
            kind = decay_log(process.disk, name, Random(action.amounts[2]))
            self._damaged(process, name, kind)

    def _lie(self, process: Process, action: Action) -> None:
        """Let syncs do nothing for a while, then let the power fail."""
        process.disk.lies_until_ms = self._world.now_ms + action.amounts[0] + 1
        self._world.after(action.amounts[0], self._end_lie, process, action)

    def _end_lie(self, process: Process, action: Action) -> None:
        disk, observer = process.disk, self._site.observer
        if self.stopped or not disk.lying:
            return
        names = [TopicPartition("t", number) for number in range(self._plan.partitions)]
        here = [name for name in names if disk.exists(partition_dir(name))]
        if not here or not all(observer.may_damage(process, name) for name in here):
            disk.stop_lying()
            return
        self._world.count("power lost after lies")
        self._notify_of_death(process)
        process.lose_power()
        disk.lies_until_ms = 0
        for name in here:
            observer.damaged(process, name)
        self._return(process, action.amounts[0])

    def _damage_two(self, process: Process, action: Action) -> None:
        """Damage the files of two replicas, while their brokers run or are down."""
        name, draw = self._damaged_partition(action), Random(action.amounts[2])
        brokers = list(self._site.brokers.values())
        others = [other for other in brokers if other is not process]
        down = draw.choice(("none", "two", "all"))
        chosen = [process, draw.choice(others)]
        for other in {"none": [], "two": chosen, "all": brokers}[down]:
            self._kill(other, action)
        struck = 0
        for one in chosen:
            if self._site.observer.may_damage(one, name):
                damage = decay_log if one.node is not None else damage_log
                kind = damage(one.disk, name, draw)
                self._damaged(one, name, kind)
                struck += kind is not None
        if struck > 1:
            self._world.count("replicas damaged at a time")

    def _unregister(self, process: Process, action: Action) -> None:
        """Kill a broker and unregister it. It registers again when it restarts, perhaps before
        the request arrives."""
        self._kill(process, action)
        self._world.count("broker unregistered")
        self._admin.unregister(process.id)

    # -- upgrades --------------------------------------------------------------------------

    def _install(self, process: Process, action: Action) -> None:
        """Restart a broker, after a clean stop or not, with the old or the new software."""
        _, which, clean = action.amounts
        self._world.count("software replaced")
        process.supported = software(*self._plan.software[which])
        if clean:
            self._shut_down(process, action)
        else:
            self._kill(process, action)

    def _update_features(self, _process: Process, action: Action) -> None:
        level, kind = action.amounts
        self._admin.update_features(level, UpgradeType(kind))

    # -- the store -------------------------------------------------------------------------

    def _cut_watch(self, process: Process, _action: Action) -> None:
        self._site.store.cut_watch(process.id)

    def _lag_watch(self, process: Process, action: Action) -> None:
        self._site.store.lag_watch(process.id, action.amounts[0])

    def _store_goes_back(self, _process: Process, action: Action) -> None:
        """Kill all brokers; the store loses its newest changes, or all of them."""
        for process in self._site.brokers.values():
            self._kill(process, action)
        by = action.amounts[2] % 1000 if action.amounts[2] % 2 else 1 + action.amounts[2] % 20
        self._site.store.go_back(by, action.amounts[0] + STORE_BACK_MS)

    def _compact_store(self, _process: Process, action: Action) -> None:
        self._site.store.compact(action.amounts[2] % 4)
