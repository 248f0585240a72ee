"""All mutants: each removes one rule, and names the bug or the model that taught it."""

from tidelog.lab.mutants import broker_rules, damage_rules, replication_rules
from tidelog.lab.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *replication_rules.RULES,
    *broker_rules.RULES,
    *damage_rules.RULES,
)

ESCAPED: tuple[Mutant, ...] = (*broker_rules.ESCAPED, *damage_rules.ESCAPED)
"""Named openly, not hunted: the lab does not find these."""
