"""The topics that consumers subscribe to, read from the metadata they join with.

A broker may read the metadata of consumers only, and only the beginning that all versions share:
a version, then the names of the topics.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as OutOfBytes

_I16 = Struct(">h")
_HEAD = Struct(">hi")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return all subscribed topics; None if the metadata of a member can't be read."""
    topics: set[str] = set()
    try:
        for one in metadata:
            topics.update(_topics(one))
    except (OutOfBytes, ValueError):
        return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    version, count = _HEAD.unpack_from(metadata)
    if version < 0 or count < 0 or count > len(metadata):
        raise ValueError(f"version {version} with {count} topics")
    at = _HEAD.size
    topics = []
    for _ in range(count):
        size = _I16.unpack_from(metadata, at)[0]
        at += _I16.size
        if size < 0 or at + size > len(metadata):
            raise ValueError(f"topic name of {size} bytes at {at} of {len(metadata)}")
        topics.append(metadata[at : at + size].decode())
        at += size
    return topics
