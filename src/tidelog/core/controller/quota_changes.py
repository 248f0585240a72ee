"""AlterClientQuotas: which keys of the store a request writes, one for each entity."""

from collections.abc import Iterable

from tidelog.core.controller.events import AlterQuotasReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import QUOTAS, TIDELOG_VERSION
from tidelog.core.controller.metadata.metadata_store import Delete, Guard, Put
from tidelog.core.controller.plans import Plan
from tidelog.core.controller.store_transactions import Write, pack
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.errors import ErrorCode
from tidelog.core.quotas.entity import altered

CHANGES_MAX = 10_000
"""Entities that one request may change, as in Kafka."""


def alter_quotas(term: ControllerTerm, event: AlterQuotasReceived) -> Plan:
    """Write the quotas of the entities that change."""
    image = term.image
    too_low = level_problem(image)
    if too_low is not None:
        return Plan(ErrorCode.UNSUPPORTED_VERSION, too_low)
    if len(event.alterations) > CHANGES_MAX:
        message = f"One request may change the quotas of {CHANGES_MAX} entities."
        return Plan(ErrorCode.POLICY_VIOLATION, message)
    if event.validate_only:
        return Plan()
    writes = []
    for entity, changes in event.alterations:
        current = image.quotas.get(entity, {})
        quotas = altered(current, changes)
        if quotas == current:
            continue
        key = keys.quota(values.encode_entity(entity))
        change = Put(key, values.encode_quotas(entity, quotas)) if quotas else Delete(key)
        writes.append(Write(change, (Guard(key, image.mod_rev(key)),)))
    # A downgrade of the level, which deletes all quotas, must not miss these.
    return Plan(steps=pack([write] for write in writes), also_busy=frozenset({keys.FEATURES}))


def level_problem(image: ClusterImage) -> str | None:
    """Return why the cluster can't have quotas yet; None if it can.

    Brokers ask before they forward a request, because a controller of older software would not
    understand it.
    """
    if image.tidelog_version >= QUOTAS:
        return None
    return (
        f"This cluster has no client quotas yet: {TIDELOG_VERSION} is {image.tidelog_version}."
        " Upgrade all brokers, then run"
        f" tidelog features upgrade --feature {TIDELOG_VERSION}={QUOTAS}"
    )


def quota_deletions(image: ClusterImage, doomed: Iterable[str]) -> list[Write]:
    """Delete the quotas with these keys."""
    return [Write(Delete(key), (Guard(key, image.mod_rev(key)),)) for key in sorted(doomed)]
