"""Mutants that each remove one rule of replication; the model checker must find each."""

from tidelog.lab.modelcheck.shipped.cluster_model import Bounds
from tidelog.lab.mutants.mutant import Change, Mutant, mutant

TWO = Bounds(replicas=2, records=2, leader_epoch=2, partition_epoch=4, messages=0)
TWO_IN_FLIGHT = Bounds(replicas=2, records=2, leader_epoch=2, partition_epoch=4, messages=1)
TWO_THREE_RECORDS = Bounds(2, records=3, leader_epoch=2, partition_epoch=4, messages=0)
TWO_MANY_EPOCHS = Bounds(2, records=3, leader_epoch=3, partition_epoch=4, messages=0)
TWO_DAMAGED = Bounds(2, 1, 2, 3, messages=0, min_insync_replicas=2, damages=1)
THREE = Bounds(replicas=3, records=1, leader_epoch=2, partition_epoch=2, messages=0)
THREE_ISR_CHANGES = Bounds(replicas=3, records=1, leader_epoch=1, partition_epoch=3, messages=1)
THREE_ONE_LEADER = Bounds(replicas=3, records=1, leader_epoch=0, partition_epoch=3, messages=1)
THREE_IN_FLIGHT = Bounds(replicas=3, records=1, leader_epoch=2, partition_epoch=2, messages=2)


def _in(module: str, old: str, new: str) -> Change:
    return Change(f"tidelog.core.replication.{module}", old, new)


_MAXIMAL = (
    "    @property\n    def maximal(self) -> frozenset[BrokerId]:\n"
    '        """Every replica that might be in the ISR as the controller sees it."""\n'
)

RULES: tuple[Mutant, ...] = (
    mutant(
        "fetch-from-an-older-epoch",
        "a leader refuses a fetch made under an older leader epoch",
        "KIP-320 (KAFKA-6880, KAFKA-7395); epoch check in IncHW and ExpandIsr",
        _in("fencing", "sent is None or sent == known", "sent is None or sent <= known"),
        bounds=THREE,
    ),
    mutant(
        "reply-from-an-older-epoch",
        "a follower discards a response to a request of an older leader epoch",
        "KAFKA-18991, KAFKA-7786; epoch check in Fetch and when truncating",
        _in(
            "follower",
            "    if replica.following is not Following.FETCHING or event.leader_epoch"
            " != replica.leader_epoch:\n",
            "    if replica.following is not Following.FETCHING:\n",
        ),
        # The node discards such replies too; remove that, so that it does not hide the mutant.
        Change(
            "tidelog.lab.modelcheck.shipped.cluster_model",
            "[*wire.after_new_request(state[2], broker), message]",
            "[*state[2], message]",
        ),
        bounds=THREE_IN_FLIGHT,
        # C has a record that the next leader lacks; that leader's response is in flight.
        prologue=(
            "LeaderWrite(A)",
            "FollowerAsk(C)",
            "Deliver(Fetch C->A)",
            "Deliver(FetchReply A->C)",
            "ControllerElectLeader(B)",
            "Learn(B, 1)",
            "Learn(C, 1)",
            "FollowerAsk(C)",
            "Deliver(Fetch C->B)",
        ),
    ),
    mutant(
        "join-before-the-epoch-start",
        "a follower joins the ISR only once it has passed the start of the leader's epoch",
        "KAFKA-7128; HW must have reached the own epoch in ExpandIsr",
        _in(
            "leader",
            "max(replica.high_watermark, replica.epoch_start_offset)",
            "replica.high_watermark",
        ),
        bounds=THREE_ISR_CHANGES,
        # A has committed a record. Its response, from which B would learn this, is in flight.
        # C is not in the ISR.
        prologue=(
            "ControllerFence(C)",
            "Learn(A, 1)",
            "LeaderWrite(A)",
            "FollowerAsk(B)",
            "Deliver(Fetch B->A)",
            "Deliver(FetchReply A->B)",
            "FollowerAsk(B)",
            "Deliver(Fetch B->A)",
        ),
    ),
    mutant(
        "join-with-records-before-the-log-start",
        "a follower joins the ISR only if its records before the leader's log start are known",
        "it would lead with records that were never committed (simulator seed 20937)",
        _in(
            "leader",
            "        and last is not None\n        and last < earliest\n",
            "        and False\n",
        ),
        only_stories=True,
    ),
    mutant(
        "keep-what-followers-had",
        "a leader discards its followers' LEOs at each new leader epoch",
        "design warning on leader to leader changes that skip an epoch",
        _in(
            "leader",
            "    replica.followers = {\n        broker: unknown_follower(",
            "    replica.followers = {\n        broker: replica.followers.get(broker)\n"
            "        or unknown_follower(",
        ),
        bounds=THREE,
    ),
    mutant(
        "pending-member-ignored",
        "the high watermark waits for a replica that may already be in the ISR",
        "KIP-497 (AsyncIsr); HW over isr only",
        _in(
            "isr",
            _MAXIMAL + "        return self.members | {self.joining}\n",
            _MAXIMAL + "        return self.members\n",
        ),
        bounds=TWO_IN_FLIGHT,
    ),
    mutant(
        "shrink-taken-for-granted",
        "a replica that may still be in the ISR counts until the controller removes it",
        "KIP-497",
        _in(
            "isr",
            "        return self.members - self.leaving\n\n"
            + _MAXIMAL
            + "        return self.members\n",
            "        return self.members - self.leaving\n\n"
            + _MAXIMAL
            + "        return self.members - self.leaving\n",
        ),
        bounds=TWO_IN_FLIGHT,
    ),
    mutant(
        "controller-compares-no-version",
        "the controller refuses a proposal made on an older partition epoch",
        "KIP-497 (AsyncIsr); controller without the version compare",
        Change(
            "tidelog.core.controller.partition_changes",
            "if proposal.partition_epoch < partition.partition_epoch:",
            "if proposal.partition_epoch < 0:",
        ),
        bounds=THREE_ONE_LEADER,
    ),
    mutant(
        "diverging-fetch-counts",
        "a diverging fetch does not update the follower's progress",
        "KAFKA-13141",
        _in("leader", "    if diverging is None and event.log_start", "    if event.log_start"),
        bounds=TWO,
    ),
    mutant(
        "high-watermark-from-a-diverging-reply",
        "a follower ignores the high watermark of a diverging response",
        "KAFKA-14704",
        _in(
            "follower",
            "        _truncate_unless_committed(replica, cut.offset, effects)\n"
            "        return effects\n"
            "    if event.batches",
            "        received = min(event.high_watermark, replica.log_end_offset)\n"
            "        replica.high_watermark = received\n"
            "        truncate(replica, cut.offset, effects)\n"
            "        replica.high_watermark = min(received, replica.log_end_offset)\n"
            "        return effects\n"
            "    if event.batches",
        ),
        bounds=TWO_MANY_EPOCHS,
    ),
    mutant(
        "epoch-not-cached-by-new-leader",
        "a leader caches its epoch before its first write",
        "KAFKA-7415",
        _in(
            "leader",
            "if replica.epochs.assign(event.leader_epoch, start):",
            "if replica.epochs.latest is None and replica.epochs.assign(0, 0):",
        ),
        bounds=TWO,
    ),
    mutant(
        "answer-does-not-name-its-epoch",
        "a leader that lacks the requested epoch names the epoch of its response",
        "KAFKA-6361 / KIP-279",
        Change(
            "tidelog.core.lineage.leader_epochs",
            "known = self._epochs[above - 1] if above else epoch",
            "known = epoch",
        ),
        bounds=TWO_THREE_RECORDS,
    ),
    mutant(
        "leader-sees-no-divergence",
        "a leader compares the follower's last epoch with its own log",
        "KIP-101 / KIP-595",
        _in(
            "reading",
            "    if last_fetched_epoch is not None:\n",
            "    if last_fetched_epoch is not None and offset < 0:\n",
        ),
        bounds=TWO,
    ),
    mutant(
        "high-watermark-goes-back",
        "a leader's high watermark never falls",
        "the max() of the HW formula",
        _in("high_watermark", "    return max(current, slowest)\n", "    return slowest\n"),
        _in(
            "leader",
            "    if advanced > replica.high_watermark:\n",
            "    if advanced != replica.high_watermark:\n",
        ),
        bounds=TWO,
    ),
    mutant(
        "unknown-follower-does-not-hold-back",
        "no record commits until every ISR member has fetched in this epoch",
        "a new leader does not know the LEOs of its followers",
        _in(
            "high_watermark",
            "            if broker in maximal:\n                return current\n",
            "            continue\n",
        ),
        bounds=TWO,
    ),
    mutant(
        "isr-does-not-matter",
        "the high watermark waits for every member of the ISR",
        "the definition of committed",
        _in("high_watermark", "            broker in maximal\n            or (", "            ("),
        bounds=TWO,
    ),
    mutant(
        "follower-trusts-the-leaders-high-watermark",
        "a follower's high watermark is at most its own LEO",
        "M11",
        _in(
            "high_watermark",
            "return max(log_start_offset, min(received, log_end_offset))",
            "return max(log_start_offset, received + 0 * log_end_offset)",
        ),
        bounds=TWO,
    ),
    mutant(
        "stale-registration",
        "a replica ignores a registration that is older than its own",
        "partition epochs on state changes",
        _in(
            "partition",
            "if partition.offline or event.partition_epoch <= partition.partition_epoch:",
            "if partition.offline or event.leader_epoch < partition.leader_epoch:",
        ),
        bounds=TWO,
    ),
    mutant(
        "committed-records-truncated",
        "a follower keeps records that it knows to be committed, though its leader lacks them",
        "an old copy of one replica's log made the other replicas drop committed records",
        _in(
            "follower",
            "    if offset >= replica.high_watermark or _may_lack_committed(replica):\n",
            "    if True:\n",
        ),
        bounds=TWO_DAMAGED,
    ),
)
