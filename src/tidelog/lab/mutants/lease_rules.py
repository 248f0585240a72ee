"""Mutants that each remove one condition under which a leader serves without the store.

Stories find them: a lease is short, and the faults that must coincide with it are rare.
"""

from tidelog.lab.mutants.mutant import Change, Mutant, mutant

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
        only_stories=True,
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
        only_stories=True,
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
        only_stories=True,
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
        only_stories=True,
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
        only_stories=True,
    ),
)
