"""Mutants that each remove one rule of brokers, disks or the controller.

They need events that the model checker leaves out: time, restarts, records lost with the page
cache, fenced brokers, two controllers at once. The simulator must find them. Where several rare
events must coincide, a story must find them.
"""

from tidelog.lab.mutants.mutant import Mutant
from tidelog.lab.mutants.universe import Change

_REPLICATION = "tidelog.core.replication"
_STORAGE = "tidelog.core.storage"
_CONTROLLER = "tidelog.core.controller"
_NODE = "tidelog.core.node"
_GROUPS = "tidelog.core.groups"

RULES: tuple[Mutant, ...] = (
    Mutant(
        "believe-a-store-that-went-back",
        "a broker does not start on a metadata store that is behind what it has seen",
        "own: folders were set aside on the word of a store without its write-ahead log",
        (
            Change(
                f"{_NODE}.membership.store_follower",
                "    if snapshot.rev < seen.revision:\n",
                "    if snapshot.rev < seen.revision * 0:\n",
            ),
        ),
    ),
    Mutant(
        "commit-under-min-isr",
        "nothing commits while fewer than min.insync.replicas are in sync",
        "KAFKA-15583 / KIP-966",
        (
            Change(
                f"{_REPLICATION}.high_watermark",
                "    if len(isr.members) < min_isr:\n",
                "    if len(isr.members) < min_isr * 0:\n",
            ),
        ),
    ),
    Mutant(
        "epoch-zero-not-rebuilt",
        "recovery puts every epoch back into the cache, epoch 0 too",
        "KAFKA-10432",
        (
            Change(
                f"{_STORAGE}.segment.epoch_check",
                "run.first) for run in accepted]), same",
                "run.first) for run in accepted if run.epoch]), same",
            ),
        ),
        only_stories=True,
    ),
    Mutant(
        "no-advance-when-the-isr-changes",
        "a smaller ISR may commit more at once",
        "KAFKA-13091",
        (
            Change(
                f"{_REPLICATION}.leader",
                "    effects: list[do.Effect] = [do.AdvanceLowWatermark()]\n"
                "    advance(replica, event.now_ms, effects)\n",
                "    effects: list[do.Effect] = [do.AdvanceLowWatermark()]\n",
            ),
            Change(
                f"{_REPLICATION}.leader",
                "    # A follower outside the ISR that stopped being caught up no longer holds the"
                " HW back.\n    advance(replica, event.now_ms, effects)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "unclean-stop-not-noticed",
        "a broker that can't prove a clean stop leaves ISR and ELR",
        "KAFKA-18635 / KIP-966",
        (
            Change(
                f"{_CONTROLLER}.metadata.registrations",
                "return self.previous_epoch != self.admitted_epoch",
                "return self.previous_epoch != self.admitted_epoch and False",
            ),
        ),
        only_stories=True,
    ),
    Mutant(
        "session-keeps-the-old-epoch",
        "a fetch session takes the leader epoch of each new request",
        "KAFKA-9338",
        (
            Change(
                f"{_NODE}.serving.fetch_sessions",
                "                known.asked = asked\n",
                "                asked.leader_epoch = known.asked.leader_epoch\n"
                "                known.asked = asked\n",
            ),
        ),
    ),
    Mutant(
        "cut-off-leader-goes-on",
        "a broker whose session is over serves nobody",
        "a zombie leader alone in its ISR",
        (
            Change(
                f"{_NODE}.hosting.gate",
                "return replica if self.acting else ErrorCode.NOT_LEADER_OR_FOLLOWER",
                "return replica",
            ),
        ),
        only_stories=True,
    ),
    Mutant(
        "epochs-without-records-stay",
        "epochs that hold no record go when the log is compared, even if no record does",
        "KAFKA-10706",
        (
            Change(
                f"{_REPLICATION}.follower",
                "    if replica.epochs.truncate_to(replica.log_end_offset):\n",
                "    if effects and replica.epochs.truncate_to(replica.log_end_offset):\n",
            ),
        ),
    ),
    Mutant(
        "controller-without-token",
        "every write of a controller is void once another has taken office",
        "fencing tokens; 330 of 1,000 schedules without",
        (
            Change(
                f"{_CONTROLLER}.store_transactions",
                '(Guard(keys.CONTROLLER, self.token, "create"), *wanted)',
                "tuple(wanted)",
            ),
        ),
    ),
    Mutant(
        "acknowledge-before-commit",
        "acks=all is answered when the high watermark has passed",
        "M17",
        (
            Change(
                f"{_REPLICATION}.leader",
                "    if event.acks == on.ACKS_ALL:\n        return [do.AwaitCommit",
                "    if event.acks == on.ACKS_ALL and base < 0:\n        return [do.AwaitCommit",
            ),
            Change(
                f"{_REPLICATION}.leader",
                "    if event.acks == on.ACKS_LEADER:\n",
                "    if event.acks != on.ACKS_NONE:\n",
            ),
        ),
    ),
    Mutant(
        "torn-tail-served",
        "after an unclean stop every batch above the recovery point is checked",
        "M04",
        (
            Change(
                f"{_STORAGE}.segment.batch_scan",
                "if check_crc and not batch.crc_ok():",
                "if check_crc and batch.size < 0:",
            ),
        ),
    ),
    Mutant(
        "earlier-life-joins",
        "a follower joins the ISR only as the incarnation that is registered",
        "KAFKA-14139, KAFKA-14617 / KIP-903",
        (
            Change(
                f"{_REPLICATION}.isr",
                "broker in eligible and incarnation in (None, eligible[broker])",
                "broker in eligible and incarnation != -2",
            ),
            Change(
                f"{_REPLICATION}.fencing",
                "sent is not None and known is not None and sent < known",
                "sent is not None and known is not None and sent < 0",
            ),
            Change(
                f"{_CONTROLLER}.partition_changes",
                "    return member.broker_epoch in (NO_EPOCH, known.epoch)\n",
                "    return member.broker_epoch >= NO_EPOCH\n",
            ),
            Change(
                f"{_NODE}.serving.fetch",
                "return known is not None and request.broker_epoch < known.epoch",
                "return known is not None and request.broker_epoch < 0",
            ),
        ),
        only_stories=True,
    ),
    Mutant(
        "commit-of-the-leader-alone",
        "a group's offset is acknowledged once all in-sync replicas have it",
        "offsets.commit.required.acks = 1, which Kafka 4 no longer has",
        (
            Change(
                f"{_NODE}.coordinating.shard_writer",
                "batch, ACKS_ALL, self._turn.now_ms)",
                "batch, 1, self._turn.now_ms)",
            ),
        ),
    ),
    Mutant(
        "assigned-before-it-is-written",
        "nobody gets an assignment before it is written",
        "the next coordinator would share out the same generation again",
        (
            Change(
                f"{_GROUPS}.membership.presence",
                "        self._rebalance.store(group, assignments, written)\n",
                "        self._rebalance.store(group, assignments, lambda *_: None)\n"
                "        written(ErrorCode.NONE, group.state_since_ms or 0)\n",
            ),
        ),
    ),
    Mutant(
        "leader-assigns-twice",
        "of two assignments for one generation the first one counts",
        "a leader that asks again after a time-out may have drawn anew",
        (
            Change(
                f"{_GROUPS}.membership.presence",
                " and group.assigned_generation != group.generation_id:",
                ":",
            ),
        ),
    ),
    Mutant(
        "compacted-above-the-high-watermark",
        "only what is committed supersedes anything",
        "the new record may be cut off, and the old one is gone",
        (
            Change(
                f"{_STORAGE}.cleaning.dirtiness",
                "    limit = min(last_stable, log.recovery_point)\n",
                "    limit = log.recovery_point\n",
            ),
        ),
    ),
    Mutant(
        "tombstones-do-not-wait",
        "no tombstone goes while a replica is out of sync",
        "the replica would come back with the deleted value",
        (
            Change(
                f"{_NODE}.upkeep.cleaning",
                "        all_in_sync = bool(replica.isr) and not replica.out_since_ms\n",
                "        all_in_sync = True\n",
            ),
        ),
    ),
    Mutant(
        "last-known-leader-returns",
        "when ISR and ELR are empty the replica with the most records leads",
        "Kafka elects the last known leader, whatever its log lacks",
        (
            Change(
                f"{_CONTROLLER}.election",
                "            replica not in draft.lost,\n            log.leader_epoch,\n"
                "            log.log_end_offset,\n",
                "            True,\n            0,\n            0,\n",
            ),
        ),
    ),
    Mutant(
        "preferred-leader-out-of-sync",
        "a preferred election takes a member of the ISR only",
        "Kafka's rule for elections of type PREFERRED",
        (
            Change(
                f"{_CONTROLLER}.election",
                "ElectionType.PREFERRED and draft.replicas[0] in valid:",
                "ElectionType.PREFERRED and draft.replicas[0] in rules.active:",
            ),
        ),
    ),
    Mutant(
        "folder-hides-the-loss",
        "a lost folder is not made anew before the loss is told",
        "killed in between, a broker would find an empty log and miss nothing",
        (
            Change(
                f"{_NODE}.membership.log_reporter",
                "        if key in self.lost:\n            return True\n",
                "",
            ),
        ),
    ),
    Mutant(
        "registration-dies-with-its-session",
        "a broker stays registered while its process is down",
        "with one of three brokers down no topic and no first group could be created",
        (
            Change(
                f"{_CONTROLLER}.metadata.cluster_image",
                "        elif broker in self._states:\n",
                "        elif broker < 0:\n",
            ),
        ),
    ),
    Mutant(
        "down-replica-in-a-new-isr",
        "the ISR of a new partition starts without the brokers that are down",
        "the leader would wait for a replica that has no log",
        (
            Change(
                f"{_CONTROLLER}.plans",
                "(topic_id, index, replicas, isr, isr[0])",
                "(topic_id, index, replicas, replicas, isr[0])",
            ),
            Change(
                f"{_CONTROLLER}.upkeep",
                "for broker in sorted(joined)]\n",
                "for broker in sorted(joined & self.image.active)]\n",
            ),
        ),
    ),
    Mutant(
        "ages-by-a-clock-that-jumped",
        "retention counts ages by the earlier of the new and the confirmed clock",
        "a clock that was wrong for a minute deleted all records; Kafka does so",
        (
            Change(
                f"{_NODE}.upkeep.duties",
                "        turn = self._turn\n        wall_ms = turn.wall.earliest_ms(turn.now_ms)\n",
                "        turn = self._turn\n        wall_ms = turn.wall_ms\n",
            ),
        ),
    ),
    Mutant(
        "a-jump-is-trusted-at-once",
        "a clock that jumped has to hold before it is trusted",
        "a clock that was wrong for a minute deleted all records; Kafka does so",
        (
            Change(
                "tidelog.core.wall_clock",
                "now_ms - self._since_ms >= self.hold_ms:",
                "now_ms - self._since_ms >= 0:",
            ),
        ),
    ),
    Mutant(
        "a-start-trusts-its-clock",
        "a broker that starts compares its clock with the time that was confirmed before",
        "a machine that boots with a wrong clock",
        (
            Change(
                "tidelog.core.wall_clock",
                "    if saved is None:\n        known = reading.wall_ms if",
                "    if saved is not None or newest_record_ms is not None:\n"
                "        return reading.wall_ms\n"
                "    if saved is None:\n        known = reading.wall_ms if",
            ),
        ),
    ),
    Mutant(
        "producers-expire-by-a-clock-that-jumped",
        "producer ids expire by the earlier of the new and the confirmed clock",
        "a retry after a jump was written twice",
        (
            Change(
                f"{_NODE}.upkeep.duties",
                "        wall_ms = self._turn.wall.earliest_ms(self._turn.now_ms)\n",
                "        wall_ms = self._turn.wall_ms\n",
            ),
        ),
    ),
)

ESCAPED: tuple[Mutant, ...] = (
    Mutant(
        "loading-leaves-the-clean-mark",
        "a crash while loading counts as an unclean stop",
        "KAFKA-10471",
        (
            Change(
                f"{_STORAGE}.checkpoint",
                "    disk.delete(layout.CLEAN_SHUTDOWN)\n",
                "",
            ),
        ),
        only_stories=True,
    ),
    Mutant(
        "fetch-before-flush",
        "with flush-before-ack a follower tells only what it has flushed",
        "flush before ack means on every replica",
        (
            Change(
                f"{_REPLICATION}.follower",
                "    if replica.durable_end_offset < replica.log_end_offset:\n",
                "    if replica.durable_end_offset < 0:\n",
            ),
        ),
    ),
    Mutant(
        "acts-before-its-loss-is-told",
        "a broker stays fenced until the cluster knows which logs it lost",
        "it may be elected before the word of its loss arrives",
        (
            Change(
                f"{_NODE}.membership.registration",
                "        self._wanted_fence = self._reporter.undecided\n",
                "        self._wanted_fence = False\n",
            ),
        ),
    ),
)
