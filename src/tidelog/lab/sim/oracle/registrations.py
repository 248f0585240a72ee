"""Invariants of broker registrations. They hold whichever brokers are up.

A registration stays when its broker goes down. So while one broker is active, a topic with a
replica on every broker can be created. Its ISR starts with the brokers that are online.
"""

from collections.abc import Callable

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_store import KV, Batch
from tidelog.core.controller.metadata.registrations import (
    NEVER_ADMITTED,
    PartitionKey,
    decode_partition,
)
from tidelog.core.types import BrokerId
from tidelog.lab.sim.machine.process import Site
from tidelog.lab.sim.swarm import CALM_START_MS

ALL_ACTIVE_BY_MS = CALM_START_MS - 500
_BROKERS = (keys.BROKER_IDS, keys.BROKER_STATES)


class RegistrationOracle:
    """Follows the broker keys of the store, one revision at a time."""

    __slots__ = ("_complete", "_image", "_none_active", "_report", "_site", "may_leave")

    def __init__(self, site: Site, report: Callable[[str, str], None]) -> None:
        self.may_leave = False
        """Whether an administrator unregisters brokers in this run."""
        self._site = site
        self._report = report
        self._image = ClusterImage()
        self._complete = False
        """Whether all brokers were active in time for every controller to learn of it before
        the first fault."""
        self._none_active = False
        """Whether at some moment since then no broker was active. A slow controller may still see
        that state."""

    def store_changed(self, batch: Batch) -> None:
        """Check one revision, before any broker receives it."""
        before = [b.id for b in self._image.brokers.values() if b.admitted_epoch != NEVER_ADMITTED]
        changes = tuple(change for change in batch.changes if change.key.startswith(_BROKERS))
        self._image.apply(Batch(batch.rev, changes))
        for broker in before:
            if broker in self._image.brokers or self.may_leave:
                continue
            self._report("registrations-stay", f"broker {broker} lost its registration")
        if self._site.world.now_ms <= ALL_ACTIVE_BY_MS and not self.may_leave:
            self._complete |= len(self._image.active) == len(self._site.brokers)
        self._none_active |= self._complete and not self._image.active
        for change in batch.changes:
            if change.key.startswith(keys.TOPIC_IDS) and change.kv is not None:
                self._check_new(change.key, change.kv)

    def _check_new(self, key: str, kv: KV) -> None:
        topic, index = key[len(keys.TOPIC_IDS) :].split("/")
        if kv.create_rev != kv.mod_rev:
            return
        made = decode_partition(PartitionKey(bytes.fromhex(topic), int(index)), kv.value)
        down = [b for b in (*made.isr, made.leader) if b is None or not self._online(b)]
        if down:
            what = f"partition {index} was created with brokers {down} in its ISR, which are down"
            self._report("new-isr-is-online", what)

    def unregistered(self) -> list[BrokerId]:
        """Return the brokers that are not registered; they stay so until they restart."""
        return [broker for broker in self._site.brokers if broker not in self._image.brokers]

    def _online(self, broker: BrokerId) -> bool:
        return broker in self._image.brokers and self._image.brokers[broker].online

    def creation_refused(self, why: str) -> None:
        """Check whether the controller may refuse a topic with a replica on every broker."""
        if self._complete and not self._none_active:
            self._report("topics-can-be-created", why)
