"""All mutants. Each removes one rule, and names the bug or the model behind the rule."""

from tidelog.lab.mutants import broker_rules, damage_rules, replication_rules
from tidelog.lab.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *replication_rules.RULES,
    *broker_rules.RULES,
    *damage_rules.RULES,
)

ESCAPED: tuple[Mutant, ...] = (*broker_rules.ESCAPED, *damage_rules.ESCAPED)
"""Mutants that the lab does not find. They are listed, but not searched for."""
