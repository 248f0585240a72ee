"""The history of a store as one checksum for each revision, chained over all changes so far.

Revisions alone do not distinguish two histories. A store that lost its newest changes continues
from its older revision, and reaches the same numbers with other contents. Two stores with the same
checksum at the same revision have had the same changes up to there (but for one chance in four
billion), so a broker that remembers one pair of them recognises a store that lost changes.
"""

from collections.abc import Iterable
from zlib import crc32

from tidelog.core.controller.metadata.metadata_store import KV, Revision

NO_CHECKSUM = 0
"""The checksum of an empty store, and of revisions older than checksums."""
WAY_OUT = (
    "restore a backup with `tidelog store restore`, or rebuild the store from the brokers' folders"
    " with `tidelog store rebuild`"
)
"""Advice for a store that is lost, damaged or behind."""


def chained(before: int, revision: Revision, changes: Iterable[tuple[str, KV | None]]) -> int:
    """Return the checksum of a revision, from the one before it and its changes."""
    checksum = crc32(b"%d" % revision, before)
    for key, kv in changes:
        checksum = crc32(key.encode(), checksum)
        checksum = crc32(b"\0-" if kv is None else b"\0+" + kv.value, checksum)
    return checksum


def row_checksum(kv: KV) -> int:
    """Return the checksum of one key as it is stored."""
    rest = b"\0%d %d %d " % (kv.create_rev, kv.mod_rev, kv.session)
    return crc32(kv.value, crc32(rest, crc32(kv.key.encode())))
