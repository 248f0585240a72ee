"""Mutants that each remove one rule about damaged logs, or elections that compare logs."""

from tidelog.lab.mutants.mutant import Change, Mutant, mutant

_STORAGE = "tidelog.core.storage"
_CONTROLLER = "tidelog.core.controller"
_REPORTER = "tidelog.core.node.membership.log_reporter"
_FOLLOWER = "tidelog.core.replication.follower"
_SCRUBBER = "tidelog.core.node.upkeep.scrubber"

RULES: tuple[Mutant, ...] = (
    mutant(
        "elected-before-all-have-reported",
        "an election by log waits for every replica that may have all committed records",
        "a replica that registers first would lead, and others would drop records that it lacks",
        Change(
            f"{_CONTROLLER}.election",
            "    if not rules.waited and not set(known) <= set(reported):\n",
            "    if not rules.waited and not set(known) & set(reported):\n",
        ),
        Change(
            f"{_CONTROLLER}.election",
            "    if on_the_way and not rules.waited:\n",
            "    if not reported:\n",
        ),
    ),
    mutant(
        "read-without-verification",
        "a batch that this process did not write is checked before it is served",
        "a flipped bit would reach consumers and followers",
        Change(
            f"{_STORAGE}.segment.damage",
            "    if position >= stop or stop <= segment.verified:\n",
            "    if True:\n",
        ),
    ),
    mutant(
        "damaged-replica-stays-in-sync",
        "a damaged replica leaves the ISR",
        "it would lead, or count as in sync, without committed records",
        Change(
            f"{_CONTROLLER}.partition_changes",
            "    isr = tuple(member for member in partition.isr if member != broker)\n"
            "    target = Target(isr=isr, unclean_shutdown=frozenset({broker}), ",
            "    isr = partition.isr\n    target = Target(isr=isr, unclean_shutdown=frozenset(), ",
        ),
    ),
    mutant(
        "damage-reported-as-a-whole-log",
        "a report says where the damage begins, and that the log is damaged",
        "the damaged log would win an election because of records that it can't serve",
        Change(
            _REPORTER,
            "            states[key] = _log_state(log, damage)._replace(as_of=as_of)\n",
            "            states[key] = _log_state(log, None)._replace(as_of=as_of)\n",
        ),
    ),
    mutant(
        "leads-before-its-damage-is-reported",
        "a broker stays fenced until the controller has stored the damage it found at startup",
        "it would lead without records that it once held (issue 16, first row)",
        Change(
            _REPORTER,
            "                self.damaged[key] = BEFORE_ANY_EPOCH\n"
            "                self._at_start.add(key)\n",
            "                pass\n",
        ),
    ),
    mutant(
        "missing-segment-not-noticed",
        "at startup each segment must end where the next one begins",
        "a segment deleted from the middle would be a silent hole (issue 16)",
        Change(
            f"{_STORAGE}.segment.damage",
            "        elif end != later.base_offset and later.base_offset > cleaned_upto:\n",
            "        elif False:\n",
        ),
    ),
    mutant(
        "missing-start-not-noticed",
        "a log begins where its first leader epoch does",
        "without its first segment the log start would move, and hide records (issue 16)",
        Change(
            f"{_STORAGE}.segment.damage",
            "    if first >= base:\n        return None\n",
            "    if True:\n        return None\n",
        ),
    ),
    mutant(
        "checkpoint-checksum-not-checked",
        "a checkpoint whose checksum differs is not used",
        "a wrong log start inside the log would hide records",
        Change(
            f"{_STORAGE}.checkpoint",
            "        elif found in self._sums[name]:\n",
            "        elif True:\n",
        ),
    ),
    mutant(
        "missing-segment-skipped-by-reads",
        "a read of records that are missing is an error",
        "a consumer would skip the missing records while a replica is repaired",
        Change(
            f"{_STORAGE}.log_reader",
            "        if segment.base_offset > offset >= expected_of(segment).gapless_from:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "scrubber-ignores-what-it-finds",
        "the scrubber reports each damaged batch that it finds",
        "damage in records that no client reads would stay until they are needed",
        Change(
            _SCRUBBER,
            "            self._replicas.damage_found(replica.topic_partition, damage)\n"
            "            self._at",
            "            self._at",
        ),
    ),
    mutant(
        "scrubber-spares-the-active-segment",
        "the scrubber also checks the active segment",
        "a lost write at the end of an idle log would stay until its records are needed",
        Change(
            _SCRUBBER,
            "                segment.require_verification()\n",
            "                if segment is not replica.log.segments.active:\n"
            "                    segment.require_verification()\n",
        ),
    ),
    mutant(
        "follower-truncates-below-high-watermark",
        "a follower keeps committed records that its leader lacks",
        "an old copy of one replica's log would make the others drop records that it lacks",
        Change(
            _FOLLOWER,
            "    if offset >= replica.high_watermark or _may_lack_committed(replica):\n",
            "    if True:\n",
        ),
    ),
    mutant(
        "refused-leader-is-believed-later",
        "a leader that was refused does not count as a second leader in its next epoch",
        "after its next restart the others would drop the records that it lacks",
        Change(
            _FOLLOWER,
            "    if replica.refused_leader not in (None, event.leader):\n",
            "    if replica.refused_leader is not None:\n",
        ),
        only_stories=True,
    ),
    mutant(
        "refuses-after-an-unclean-election",
        "an unclean election explains that a leader lacks committed records",
        "replicas would stay out of sync after every unclean election",
        Change(
            _FOLLOWER,
            "    unclean_since = replica.unclean_epoch >"
            " (NO_EPOCH if latest is None else latest)\n",
            "    unclean_since = False\n",
        ),
    ),
    mutant(
        "refusal-not-reported",
        "a follower reports a leader that lacks committed records",
        "the damaged leader would stay the leader, and its followers would stay out of sync",
        Change(_REPORTER, "            self._refused(),\n", "            {},\n"),
    ),
    mutant(
        "fetches-from-its-end-during-a-repair",
        "a replica under repair fetches only the records that it lacks",
        "its leader would add it to the ISR without them",
        Change(
            _FOLLOWER,
            "    if replica.repair is not None:\n        return _repair_question",
            "    if replica.repair and not replica.repair.is_waiting:\n"
            "        return _repair_question",
        ),
        only_stories=True,
    ),
    mutant(
        "repair-waits-at-the-leaders-log-end",
        "a repair requests the leader's log end before it fetches",
        "own bug: the replica stayed out of the ISR, and min.insync.replicas forbade every append",
        Change(
            _FOLLOWER,
            "    if repair.may_be_beyond_leader:\n        return do.OffsetsQuestion",
            "    if repair.may_be_beyond_leader and False:\n        return do.OffsetsQuestion",
        ),
        only_stories=True,
    ),
    mutant(
        "truncation-ends-the-repair",
        "after a truncation a repair begins again before the replica fetches from its log end",
        "own bug: the copy was dropped, and a replica joined the ISR without its first records",
        Change(
            _FOLLOWER,
            "        replica.repair = Repair(start, start, replica.repair.leader_end)\n",
            "        replica.repair = None if offset <= start else replica.repair\n",
        ),
        only_stories=True,
    ),
)

ESCAPED: tuple[Mutant, ...] = (
    mutant(
        "repaired-with-records-of-another-epoch",
        "damaged records are replaced only by records of the same leader epoch",
        "records of another lineage would be mixed with committed records",
        Change(
            "tidelog.core.replication.follower",
            "        if not in_place or batch.leader_epoch != expected:\n",
            "        if not in_place:\n",
        ),
    ),
)
