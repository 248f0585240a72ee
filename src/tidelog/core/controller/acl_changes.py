"""CreateAcls and DeleteAcls: which keys of the store a request writes.

Many ACLs need several transactions, and the controller may fail between two of them. So ACLs that
deny are created first and deleted last: no moment allows what neither the old nor the new ACLs do.
"""

from collections.abc import Iterable

from tidelog.core.authorization.acl import Acl, Permission
from tidelog.core.controller.effects import AclsDeleted
from tidelog.core.controller.events import CreateAclsReceived, DeleteAclsReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import ACLS, TIDELOG_VERSION
from tidelog.core.controller.metadata.metadata_store import ABSENT, Delete, Guard, Put
from tidelog.core.controller.metadata.registrations import encode_acl
from tidelog.core.controller.plans import Plan
from tidelog.core.controller.store_transactions import Write, pack
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.errors import ErrorCode

CHANGES_MAX = 10_000
"""ACLs that one request may create or delete, as in Kafka."""


def create_acls(term: ControllerTerm, event: CreateAclsReceived) -> Plan:
    """Store the ACLs that do not exist yet."""
    image = term.image
    if image.tidelog_version < ACLS:
        message = (
            f"This cluster has no ACLs yet: {TIDELOG_VERSION} is {image.tidelog_version}. Upgrade"
            f" all brokers, then run tidelog features upgrade --feature {TIDELOG_VERSION}={ACLS}"
        )
        return Plan(ErrorCode.UNSUPPORTED_VERSION, message)
    if len(event.acls) > CHANGES_MAX:
        return Plan(ErrorCode.POLICY_VIOLATION, f"One request may create {CHANGES_MAX} ACLs.")
    puts = {}
    for acl in sorted(event.acls, key=_allows):
        value = encode_acl(acl)
        key = keys.acl(value)
        if key not in image.acls:
            puts[key] = Write(Put(key, value), (Guard(key, ABSENT),))
    # The level must not be lowered meanwhile.
    return Plan(steps=pack([write] for write in puts.values()), also_busy=_LEVEL)


def delete_acls(term: ControllerTerm, event: DeleteAclsReceived) -> Plan:
    """Delete the selected ACLs, and list them for each filter."""
    image = term.image
    found = [
        {key: acl for key, acl in image.acls.items() if wanted.matches(acl)}
        for wanted in event.filters
    ]
    doomed = {key: acl for each in found for key, acl in each.items()}
    if len(doomed) > CHANGES_MAX:
        return Plan(ErrorCode.POLICY_VIOLATION, f"One request may delete {CHANGES_MAX} ACLs.")
    deleted = AclsDeleted(tuple(tuple(each.values()) for each in found))
    writes = acl_deletions(image, doomed)
    return Plan(steps=pack([write] for write in writes), answer=deleted, also_busy=_LEVEL)


def acl_deletions(image: ClusterImage, doomed: Iterable[str]) -> list[Write]:
    """Return the writes that delete these ACLs, those that deny last."""
    ordered = sorted(doomed, key=lambda key: _allows(image.acls[key]), reverse=True)
    return [Write(Delete(key), (Guard(key, image.mod_rev(key)),)) for key in ordered]


def _allows(acl: Acl) -> bool:
    return acl.permission is Permission.ALLOW


_LEVEL = frozenset({keys.FEATURES})
