"""AlterUserScramCredentials: store or delete what brokers know of one user's password."""

from collections.abc import Iterable

from tidelog.core.controller.events import AlterScramReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import SCRAM
from tidelog.core.controller.metadata.metadata_store import Delete, Guard, Put
from tidelog.core.controller.plans import Plan
from tidelog.core.controller.store_transactions import Write
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.errors import ErrorCode


def alter_scram(term: ControllerTerm, event: AlterScramReceived) -> Plan:
    """Store or delete one credential, with Kafka's errors."""
    image = term.image
    if image.tidelog_version < SCRAM:
        message = (
            f"The current tidelog.version does not support SCRAM: raise it to {SCRAM} with"
            " `tidelog features upgrade`."
        )
        return Plan(ErrorCode.UNSUPPORTED_VERSION, message)
    name = (event.mechanism, event.user)
    if event.credential is None:
        if name not in image.scram:
            message = "Attempt to delete a user credential that does not exist"
            return Plan(ErrorCode.RESOURCE_NOT_FOUND, message)
        writes = scram_deletions(image, [name])
    else:
        key = keys.scram(*name)
        value = values.encode_scram(event.user, event.credential)
        writes = [Write(Put(key, value), (Guard(key, image.mod_rev(key)),))]
    # A downgrade of the level, which deletes all credentials, must not miss this one.
    return Plan(steps=[writes], also_busy=frozenset({keys.FEATURES}))


def scram_deletions(image: ClusterImage, names: Iterable[tuple[str, str]]) -> list[Write]:
    """Delete credentials, by mechanism and user."""
    found = sorted(keys.scram(*name) for name in names)
    return [Write(Delete(key), (Guard(key, image.mod_rev(key)),)) for key in found]
