"""Mutants that each remove one rule of brokers, disks or the controller.

They need events that the model checker leaves out: time, restarts, records lost with the page
cache, fenced brokers, two controllers at once. The simulator must find them. Where several rare
events must coincide, a story must find them.
"""

from tidelog.lab.mutants.mutant import Change, Mutant, mutant

_REPLICATION = "tidelog.core.replication"
_STORAGE = "tidelog.core.storage"
_CONTROLLER = "tidelog.core.controller"
_NODE = "tidelog.core.node"
_GROUPS = "tidelog.core.groups"

RULES: tuple[Mutant, ...] = (
    mutant(
        "believe-a-store-that-went-back",
        "a broker does not start on a metadata store that is behind what it has seen",
        "own bug: a store without its write-ahead log made brokers set folders aside",
        Change(
            f"{_NODE}.membership.store_follower",
            "    if snapshot.rev < seen.revision:\n",
            "    if snapshot.rev < seen.revision * 0:\n",
        ),
    ),
    mutant(
        "commit-under-min-isr",
        "no record commits while fewer than min.insync.replicas replicas are in sync",
        "KAFKA-15583 / KIP-966",
        Change(
            f"{_REPLICATION}.high_watermark",
            "    if len(isr.members) < min_isr:\n",
            "    if len(isr.members) < min_isr * 0:\n",
        ),
    ),
    mutant(
        "end-silent-sessions-early",
        "a silent session is ended after its whole time to live",
        "ADR 58: its broker still counts on it",
        Change(
            f"{_CONTROLLER}.metadata.silent_sessions",
            "known.silent_since_ms >= known.renewal.ttl_ms\n",
            "known.silent_since_ms >= known.renewal.ttl_ms * 2 // 3\n",
        ),
    ),
    mutant(
        "count-from-the-renewal-before",
        "the time of a renewal is never estimated too early",
        "ADR 58: its broker still counts on the session",
        Change(
            f"{_CONTROLLER}.metadata.silent_sessions",
            "                since_ms = min(now_ms, known.arrived_ms + passed_ms)\n",
            "                since_ms = known.arrived_ms\n",
        ),
    ),
    mutant(
        "epoch-zero-not-rebuilt",
        "recovery restores every leader epoch in the cache, epoch 0 too",
        "KAFKA-10432",
        Change(
            f"{_STORAGE}.segment.batch_order",
            "run.first) for run in accepted]), same",
            "run.first) for run in accepted if run.epoch]), same",
        ),
        only_stories=True,
    ),
    mutant(
        "no-advance-when-the-isr-changes",
        "the high watermark advances at once when the ISR shrinks",
        "KAFKA-13091",
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
    mutant(
        "unclean-stop-not-noticed",
        "a broker that can't prove a clean stop leaves ISR and ELR",
        "KAFKA-18635 / KIP-966",
        Change(
            f"{_CONTROLLER}.metadata.registrations",
            "return self.previous_epoch != self.admitted_epoch",
            "return self.previous_epoch != self.admitted_epoch and False",
        ),
        only_stories=True,
    ),
    mutant(
        "earlier-incarnation-fetches-again",
        "a leader refuses fetches of an older incarnation than the last that fetched",
        "own bug: after restarts of two brokers idle partitions stayed under-replicated",
        Change(
            f"{_REPLICATION}.leader",
            "        follower.broker_epoch, event.broker_epoch\n",
            "        follower.broker_epoch, None\n",
        ),
        first_seed=0,
    ),
    mutant(
        "session-keeps-the-old-epoch",
        "a fetch session uses the leader epoch of each new request",
        "KAFKA-9338",
        Change(
            f"{_NODE}.serving.fetch_sessions",
            "                known.asked = asked\n",
            "                asked.leader_epoch = known.asked.leader_epoch\n"
            "                known.asked = asked\n",
        ),
    ),
    mutant(
        "cut-off-leader-keeps-serving",
        "a broker whose session has expired serves no clients and followers",
        "a zombie leader alone in its ISR",
        Change(
            f"{_NODE}.hosting.gate",
            "        return ErrorCode.NOT_LEADER_OR_FOLLOWER\n\n    def holds_lease",
            "        return replica\n\n    def holds_lease",
        ),
        only_stories=True,
    ),
    mutant(
        "epochs-without-records-stay",
        "comparing logs removes epochs without records, even if it truncates no record",
        "KAFKA-10706",
        Change(
            f"{_REPLICATION}.follower",
            "    if replica.epochs.truncate_to(replica.log_end_offset):\n",
            "    if effects and replica.epochs.truncate_to(replica.log_end_offset):\n",
        ),
    ),
    mutant(
        "controller-without-token",
        "the store rejects every write of a controller that was replaced",
        "fencing tokens; without them 330 of 1,000 schedules failed",
        Change(
            f"{_CONTROLLER}.store_transactions",
            '(Guard(keys.CONTROLLER, self.token, "create"), *wanted)',
            "tuple(wanted)",
        ),
    ),
    mutant(
        "acknowledge-before-commit",
        "a write with acks=all is acknowledged after the high watermark has passed it",
        "M17",
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
    mutant(
        "torn-tail-served",
        "after an unclean stop every batch above the recovery point is checked",
        "M04",
        Change(
            f"{_STORAGE}.segment.batch_scan",
            "if check_crc and not batch.crc_ok():",
            "if check_crc and batch.size < 0:",
        ),
    ),
    mutant(
        "earlier-life-joins",
        "a follower joins the ISR only in its registered incarnation",
        "KAFKA-14139, KAFKA-14617 / KIP-903",
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
        only_stories=True,
    ),
    mutant(
        "commit-of-the-leader-alone",
        "a group's offset is acknowledged once all in-sync replicas have it",
        "offsets.commit.required.acks = 1, which Kafka 4 no longer has",
        Change(
            f"{_NODE}.coordinating.coordinator_runtime",
            "            batch,\n            ACKS_ALL,\n",
            "            batch,\n            1,\n",
        ),
    ),
    mutant(
        "assigned-before-it-is-written",
        "no member receives an assignment before it is written to the log",
        "the next coordinator would assign the same generation again",
        Change(
            f"{_GROUPS}.membership.requests",
            "        self._rebalance.store(group, assignments, written)\n\n    # -- Heartbeat",
            "        self._rebalance.store(group, assignments, lambda *_: None)\n"
            "        written(ErrorCode.NONE, group.state_since_ms or 0)\n\n    # -- Heartbeat",
        ),
    ),
    mutant(
        "leader-assigns-twice",
        "of two assignments for the same generation, the first one counts",
        "a group leader that retries after a timeout may send another assignment",
        Change(
            f"{_GROUPS}.membership.requests",
            " and group.assigned_generation != group.generation_id:",
            ":",
        ),
    ),
    mutant(
        "compacted-above-the-high-watermark",
        "compaction removes a record only if a committed record replaces it",
        "the newer record may be truncated after the older one was removed",
        Change(
            f"{_STORAGE}.cleaning.dirtiness",
            "    limit = min(last_stable, log.recovery_point)\n",
            "    limit = log.recovery_point\n",
        ),
    ),
    mutant(
        "tombstones-do-not-wait",
        "compaction removes no tombstone while a replica is out of sync",
        "the replica would return with the deleted value",
        Change(
            f"{_NODE}.upkeep.cleaning",
            "        all_in_sync = bool(replica.isr) and not replica.out_since_ms\n",
            "        all_in_sync = True\n",
        ),
    ),
    mutant(
        "last-known-leader-returns",
        "when ISR and ELR are empty the replica with the most records leads",
        "Kafka elects the last known leader, even if its log lacks records",
        Change(
            f"{_CONTROLLER}.election",
            "            replica not in draft.lost,\n            log.leader_epoch,\n"
            "            log.log_end_offset,\n",
            "            True,\n            0,\n            0,\n",
        ),
    ),
    mutant(
        "newer-epoch-out-of-sync-wins",
        "a log that was out of sync does not win by an epoch that no sound log in sync has",
        "later leaders may have committed older records without writing any (simulator seed 51329)",
        Change(
            f"{_CONTROLLER}.election",
            "    if sound and not aggressive:\n        newest",
            "    if False:\n        newest",
        ),
        only_stories=True,
    ),
    mutant(
        "preferred-leader-out-of-sync",
        "a preferred election elects only a member of the ISR",
        "Kafka's rule for elections of type PREFERRED",
        Change(
            f"{_CONTROLLER}.election",
            "ElectionType.PREFERRED and draft.replicas[0] in valid:",
            "ElectionType.PREFERRED and draft.replicas[0] in rules.active:",
        ),
    ),
    mutant(
        "folder-hides-the-loss",
        "a broker reports a lost folder before it creates the folder again",
        "a broker killed in between would find an empty log and report no loss",
        Change(
            f"{_NODE}.membership.log_reporter",
            "        if key in self.lost:\n            return True\n",
            "",
        ),
    ),
    mutant(
        "registration-dies-with-its-session",
        "a broker stays registered while its process is down",
        "with one of three brokers down, no topic could be created",
        Change(
            f"{_CONTROLLER}.metadata.cluster_image",
            "        elif broker in self.states:\n",
            "        elif broker < 0:\n",
        ),
    ),
    mutant(
        "down-replica-in-a-new-isr",
        "the ISR of a new partition starts without the brokers that are down",
        "the leader would wait for a replica that has no log",
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
    mutant(
        "ages-by-a-clock-that-jumped",
        "retention computes ages by the earlier of the new and the confirmed time",
        "a clock that was wrong for a minute deleted all records; Kafka does so",
        Change(
            f"{_NODE}.upkeep.duties",
            "        turn = self._turn\n        wall_ms = turn.wall.earliest_ms(turn.now_ms)\n",
            "        turn = self._turn\n        wall_ms = turn.wall_ms\n",
        ),
    ),
    mutant(
        "a-jump-is-trusted-at-once",
        "a clock that jumped is trusted only after it ran without a jump for a while",
        "a clock that was wrong for a minute deleted all records; Kafka does so",
        Change(
            "tidelog.core.wall_clock",
            "now_ms - self._since_ms >= self.hold_ms:",
            "now_ms - self._since_ms >= 0:",
        ),
    ),
    mutant(
        "a-start-trusts-its-clock",
        "a broker that starts compares its clock with the time that was confirmed before",
        "a machine that boots with a wrong clock",
        Change(
            "tidelog.core.wall_clock",
            "    if saved is None:\n        known = reading.wall_ms if",
            "    if saved is not None or newest_record_ms is not None:\n"
            "        return reading.wall_ms\n"
            "    if saved is None:\n        known = reading.wall_ms if",
        ),
    ),
    mutant(
        "producers-expire-by-a-clock-that-jumped",
        "producer ids expire by the earlier of the new and the confirmed time",
        "a retry after a jump was written twice",
        Change(
            f"{_NODE}.upkeep.duties",
            "        wall_ms = self._turn.wall.earliest_ms(self._turn.now_ms)\n",
            "        wall_ms = self._turn.wall_ms\n",
        ),
    ),
    mutant(
        "truncation-leaves-no-entry",
        "a replica writes each removal of records to the loss ledger",
        "KAFKA-10751",
        Change(
            f"{_NODE}.hosting.replicas",
            "        self.recorder.removing(replica, cause, max(start, offset), before, *known)\n",
            "",
        ),
    ),
    mutant(
        "unclean-election-leaves-no-entry",
        "every replica writes an unclean election to the loss ledger before it learns of it",
        "KAFKA-10751",
        Change(
            f"{_NODE}.membership.image_applier",
            "            self._replicas.recorder.registered(replica, known.unclean_election)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "killed-leader-forgets-its-acks",
        "a leader notes the acks of its producers on disk, so that it knows them after a kill",
        "KAFKA-10751",
        Change(
            f"{_NODE}.serving.produce",
            "            self._replicas.note_acks(replica, request.acks)\n",
            "            pass\n",
        ),
        only_stories=True,
    ),
)

ESCAPED: tuple[Mutant, ...] = (
    mutant(
        "loading-leaves-the-clean-mark",
        "a crash while loading counts as an unclean stop",
        "KAFKA-10471",
        Change(f"{_STORAGE}.checkpoint", "    disk.delete(layout.CLEAN_SHUTDOWN)\n", ""),
        only_stories=True,
    ),
    mutant(
        "fetch-before-flush",
        "with flush-before-ack a follower reports only records that it has flushed",
        "flush-before-ack applies to every replica",
        Change(
            f"{_REPLICATION}.follower",
            "    if replica.durable_end_offset < replica.log_end_offset:\n",
            "    if replica.durable_end_offset < 0:\n",
        ),
    ),
    mutant(
        "acts-before-its-loss-is-reported",
        "a broker stays fenced until the cluster knows which logs it lost",
        "the broker may be elected before the report of its loss arrives",
        Change(
            f"{_NODE}.membership.registration",
            "        self._wanted_fence = self._reporter.must_stay_fenced\n",
            "        self._wanted_fence = False\n",
        ),
    ),
)
