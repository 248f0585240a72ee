"""Rules about damaged logs, and about elections that compare logs, taken out one by one."""

from tidelog.lab.mutants.mutant import Mutant
from tidelog.lab.mutants.universe import Change

_STORAGE = "tidelog.core.storage"
_CONTROLLER = "tidelog.core.controller"

RULES: tuple[Mutant, ...] = (
    Mutant(
        "elected-before-all-have-reported",
        "an election by log waits for every replica that may have all committed records",
        "a replica that registers first would lead, and others would drop what it lacks",
        (
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
    ),
    Mutant(
        "read-without-verification",
        "a batch that this process did not write is checked before it is served",
        "a flipped bit would reach consumers and followers",
        (
            Change(
                f"{_STORAGE}.segment.verification",
                "    if position >= stop or stop <= segment.verified:\n",
                "    if True:\n",
            ),
        ),
    ),
)

ESCAPED: tuple[Mutant, ...] = (
    Mutant(
        "damage-cut-without-a-leader",
        "a damaged log is not truncated while its partition has no leader",
        "the controller would elect it for records that it has truncated since its report",
        (
            Change(
                "tidelog.core.node.membership.log_reporter",
                "            if known is None or known.leader is None:\n",
                "            if known is None:\n",
            ),
        ),
    ),
)
