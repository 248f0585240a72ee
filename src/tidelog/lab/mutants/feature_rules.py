"""Mutants that each remove one rule of feature levels (ADR 47).

The simulator finds them in runs with rolling upgrades.
"""

from tidelog.lab.mutants.mutant import Change, Mutant, mutant

_CONTROLLER = "tidelog.core.controller"
_NODE = "tidelog.core.node"

RULES: tuple[Mutant, ...] = (
    mutant(
        "field-written-before-its-level",
        "a field is written to the store only at its feature level",
        "ADR 47: an older controller would drop the field",
        Change(
            f"{_CONTROLLER}.upkeep",
            "    ranges = broker.features if image.tidelog_version >= RANGES_IN_STATES else ()\n",
            "    ranges = broker.features\n",
        ),
    ),
    mutant(
        "downgrade-leaves-fields",
        "a lower level removes the fields of the higher one",
        "ADR 47: software that does not know the fields may run again",
        Change(
            f"{_CONTROLLER}.feature_levels",
            "        if state.features != ranges:\n",
            "        if state.features != ranges and ranges:\n",
        ),
    ),
    mutant(
        "level-raised-despite-older-brokers",
        "every registered broker must support a new level",
        "Kafka's FeatureControlManager",
        Change(
            f"{_CONTROLLER}.feature_levels",
            'reason = _outside(f"Broker {broker.id}", range_of(broker.features, name), level)',
            "reason = None",
        ),
    ),
    mutant(
        "level-raised-while-ranges-are-unknown",
        "no level changes while the software of a broker that is down is unknown",
        "ADR 47: the broker could not start again",
        Change(
            f"{_CONTROLLER}.feature_levels",
            "        elif reason is None and level != image.features.get(name, 0):\n",
            "        elif reason is None and level < 0:\n",
        ),
    ),
    mutant(
        "older-software-admitted",
        "a broker that does not support the levels is not admitted",
        "ADR 47: it started before the level was raised, and registers after that",
        Change(
            f"{_CONTROLLER}.upkeep",
            "        if unsupported(levels, broker.features) is not None:\n",
            "        if False:\n",
        ),
        first_seed=730,
    ),
    mutant(
        "runs-on-unsupported-levels",
        "a broker stops when it sees levels that its software does not support",
        "ADR 47: it would wait for its admission for ever, or control the cluster",
        Change(
            f"{_NODE}.node",
            "            reason = features.refusal(self.image.features, self.supported)\n",
            "            reason = None\n",
        ),
        first_seed=910,
    ),
)
