"""The rules under which a story can be played: those that brokers follow today, and earlier ones.

A rule replaces one decision of the brokers; all other code is the shipped code. There are rules of
truncation and rules of transactions. The code calls a rule a policy, as JSON does.
"""

from dataclasses import dataclass

from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.lab.historical_truncation import POLICIES


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule by its name in stories."""

    name: str
    truncation: TruncationPolicy = LEADER_EPOCH
    transaction_version: int | None = None
    """The level of `transaction.version`; None leaves it to the story."""
    verifies: bool = True
    """Whether leaders ask the coordinator before they append the first batch of a transaction."""
    shipped: bool = False
    """Whether brokers follow this rule today by default."""


SHIPPED = LEADER_EPOCH.name
"""The rule of stories that name none."""
TRANSACTION_RULES = (
    Rule("transaction-v1-unverified", transaction_version=1, verifies=False),
    Rule("transaction-v1", transaction_version=1),
    Rule("transaction-v2", transaction_version=2, shipped=True),
)
RULES: dict[str, Rule] = {
    **{name: Rule(name, policy, shipped=name == SHIPPED) for name, policy in POLICIES.items()},
    **{rule.name: rule for rule in TRANSACTION_RULES},
}
"""All rules by name; the shipped rule of truncation is the first."""
