"""The copy that each broker keeps of the metadata that partitions' folders do not contain.

Topics, partitions, replicas and epochs can be recovered from the brokers' folders if the store is
lost. Settings of topics and brokers and the next producer id can't: a compacted topic without its
`cleanup.policy` would lose records to retention. So each broker writes them to `metadata-copy`, a
few seconds after they changed. `tidelog store rebuild` reads the newest copy.
"""

import json
from typing import NamedTuple

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_store import Revision


class MetadataCopy(NamedTuple):
    """Settings by their keys in the store, and the next producer id, as of one revision."""

    revision: Revision
    configs: dict[str, dict[str, str]]
    next_producer_id: int


def encode_copy(image: ClusterImage) -> bytes:
    """Encode the copy of an image."""
    fields = {
        "version": 0,
        "revision": image.revision,
        "next_producer_id": image.next_producer_id,
        "configs": image.configs,
    }
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_copy(data: bytes) -> MetadataCopy | None:
    """Decode a copy. Return None if it is damaged or of a newer release."""
    try:
        fields = json.loads(data)
        if fields["version"] != 0:
            return None
        configs = {str(key): dict(value) for key, value in fields["configs"].items()}
        return MetadataCopy(int(fields["revision"]), configs, int(fields["next_producer_id"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
