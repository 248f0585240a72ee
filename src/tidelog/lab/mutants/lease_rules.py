"""Mutants that each remove one condition under which a leader serves without the store.

The checker's model of the lease must find each (lab/modelcheck/shipped/lease_model.py).
"""

from tidelog.lab.modelcheck.shipped.lease_model import LeaseBounds
from tidelog.lab.mutants.mutant import Change, Mutant, mutant

TWO = LeaseBounds(replicas=2, partition_epoch=2)
TWO_IN_FLIGHT = LeaseBounds(replicas=2, messages=1, partition_epoch=2)
THREE = LeaseBounds(replicas=3, partition_epoch=2)
THREE_ISR_CHANGES = LeaseBounds(replicas=3, partition_epoch=3)

_LEASE = "tidelog.core.replication.follower_lease"

RULES: tuple[Mutant, ...] = (
    mutant(
        "lone-leader-serves-without-store",
        "a leader alone in its ISR stops when it can't renew its session",
        "own: an operator elects another replica, and both acknowledge",
        Change(
            _LEASE,
            "if not replica.is_leader or len(replica.isr.members) < 2:",
            "if not replica.is_leader:",
        ),
        bounds=TWO,
    ),
    mutant(
        "lease-never-ends",
        "a follower that stopped fetching may be the new leader",
        "M18",
        Change(
            "tidelog.core.node.hosting.gate",
            "self._confirmed_ms(follower, replica) >= since_ms",
            "True",
        ),
        bounds=TWO,
    ),
    mutant(
        "lease-of-one-follower",
        "the lease needs a fetch of every in-sync follower",
        "own: most followers may not know of the new leader yet",
        Change(
            _LEASE,
            "            return False\n    return True",
            "            continue\n        return True\n    return False",
        ),
        bounds=THREE,
        prologue=("Tick", "Tick", "Fence(A, elect C)"),
    ),
    mutant(
        "lease-despite-unclean-elections",
        "where unclean elections are allowed no fetch proves that a leader was not replaced",
        "own: two replicas cut off together acknowledge after the election of a third",
        Change(
            _LEASE,
            "    if replica.config.unclean_leader_election_enable:\n        return False\n",
            "",
        ),
        bounds=THREE_ISR_CHANGES,
        prologue=("Tick", "Fence(B)"),
    ),
    mutant(
        "detached-leader-accepts-acks-1",
        "without a valid session only records that followers have are acknowledged",
        "own: acks=1 acknowledges what only a replaced leader has",
        Change(
            "tidelog.core.node.serving.produce",
            "if request.acks != ACKS_ALL and not self._gate.acting:",
            "if request.acks not in (ACKS_ALL, 1) and not self._gate.acting:",
        ),
        bounds=TWO,
    ),
    mutant(
        "lease-from-the-arrival-of-a-fetch",
        "a fetch proves only that its sender followed the leader when the last response was sent",
        "own: after a hang, fetches wait in the socket that were sent before the election",
        Change(
            "tidelog.core.node.serving.fetch_sessions",
            "session.confirmed_ms = session.responded_ms",
            "session.confirmed_ms = now_ms",
        ),
        bounds=TWO_IN_FLIGHT,
    ),
    mutant(
        "lease-of-a-fetch-of-other-partitions",
        "the lease needs fetches of this partition, not only of others in the same session",
        "own: an elected replica goes on fetching other partitions from the old leader",
        Change(
            "tidelog.core.node.serving.fetch_sessions",
            "for topic_partition in request.forgotten:",
            "for topic_partition in request.forgotten[:0]:",
        ),
        bounds=TWO,
    ),
    mutant(
        "lease-without-the-joining-replica",
        "the lease needs a replica that the leader has proposed for the ISR",
        "own: the controller may have accepted it and elected that replica",
        Change(
            _LEASE,
            "for broker in replica.isr.maximal - {replica.local}:",
            "for broker in replica.isr.members - {replica.local}:",
        ),
        bounds=THREE,
        prologue=("Tick", "Tick", "Fetch(C)", "AcceptIsr"),
    ),
    mutant(
        "detached-leader-keeps-waiting-writes",
        "writes that wait for followers fail when the lease does not hold",
        "own: they were accepted with a session, and are acknowledged after an unclean election",
        Change(
            "tidelog.core.node.activation",
            "if waits and not self._gate.holds_lease(replica):",
            "if waits and self._gate.acting:",
        ),
        bounds=THREE,
        prologue=("Fetch(B)", "Write(A, acks=all)"),
    ),
)
