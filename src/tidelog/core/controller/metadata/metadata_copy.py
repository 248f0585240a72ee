"""The copy that each broker keeps of the metadata that partitions' folders do not contain.

Topics, partitions, replicas and epochs can be recovered from the brokers' folders if the store is
lost. Settings of topics and brokers, ACLs, client quotas, the next producer id, the feature levels
and the ids of all brokers can't: a compacted topic without its `cleanup.policy` would lose records
to retention, and a rebuild without the folders of all brokers may lose records too. So each broker
writes them to `metadata-copy`, a few seconds after they changed. `tidelog store rebuild` reads the
newest copy.
"""

import json
from typing import NamedTuple

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.core.controller.metadata.registrations import encode_acl, encode_quotas
from tidelog.core.types import BrokerId


class MetadataCopy(NamedTuple):
    """Settings by their keys in the store, the next producer id, the feature levels and the
    registered brokers, as of one revision."""

    revision: Revision
    configs: dict[str, dict[str, str]]
    next_producer_id: int
    features: dict[str, int] | None = None
    """The finalised feature levels; None in copies of older releases."""
    brokers: tuple[BrokerId, ...] | None = None
    """The registered brokers; None in copies of older releases."""
    acls: dict[str, str] | None = None
    """Encoded ACLs by their keys in the store; None in copies of older releases."""
    quotas: dict[str, str] | None = None
    """Encoded client quotas by their keys in the store; None in copies of older releases."""


def encode_copy(image: ClusterImage) -> bytes:
    """Encode the copy of an image."""
    fields = {
        "version": 0,
        "revision": image.revision,
        "next_producer_id": image.next_producer_id,
        "configs": image.configs,
        "features": image.features,
        "brokers": sorted(image.states),
        "acls": {key: encode_acl(acl).decode() for key, acl in image.acls.items()},
        "quotas": {
            key: encode_quotas(entity, image.quotas[entity]).decode()
            for key, entity in image.quota_keys.items()
        },
    }
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_copy(data: bytes) -> MetadataCopy | None:
    """Decode a copy. Return None if it is damaged or of a newer release."""
    try:
        fields = json.loads(data)
        if fields["version"] != 0:
            return None
        configs = {str(key): dict(value) for key, value in fields["configs"].items()}
        levels = fields.get("features")
        features = None if levels is None else {str(n): int(v) for n, v in levels.items()}
        next_id = int(fields["next_producer_id"])
        ids = fields.get("brokers")
        brokers = None if ids is None else tuple(map(int, ids))
        acls, quotas = _texts(fields.get("acls")), _texts(fields.get("quotas"))
        revision = int(fields["revision"])
        return MetadataCopy(revision, configs, next_id, features, brokers, acls, quotas)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _texts(given: dict[object, object] | None) -> dict[str, str] | None:
    return None if given is None else {str(key): str(text) for key, text in given.items()}
