"""Invariants of feature levels, in runs where brokers run two versions of the software (ADR 47).

fields-match-level        no record of the store has a field of a level above the finalised one
levels-supported          a level changes only if every admitted broker, up or down, supports it,
                          and a broker is admitted only if it supports the levels
unsupported-brokers-stop  a broker that does not support the levels neither serves nor controls
"""

from collections.abc import Callable

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import (
    RANGES_IN_STATES,
    SUPPORTED,
    TIDELOG_VERSION,
    FeatureRange,
    range_of,
    unsupported,
)
from tidelog.core.controller.metadata.metadata_store import Batch
from tidelog.core.controller.metadata.registrations import decode_broker
from tidelog.core.types import BrokerEpoch, BrokerId
from tidelog.lab.sim.machine.process import Process, Site

_NOT_BY_CONTROLLERS = (keys.BROKER_IDS, keys.CONTROLLER)
"""Keys that sessions and candidates write. A candidate may not know of the newest level yet."""


class FeatureLevelOracle:
    """Follows the store, one revision at a time, and the brokers, one step at a time."""

    __slots__ = ("_admitted", "_image", "_registered", "_report", "_site")

    def __init__(self, site: Site, report: Callable[[str, str], None]) -> None:
        self._site = site
        self._report = report
        self._image = ClusterImage()
        self._registered: dict[BrokerId, tuple[BrokerEpoch, tuple[FeatureRange, ...]]] = {}
        """The epoch and the software of each broker's newest registration."""
        self._admitted: dict[BrokerId, tuple[BrokerEpoch, tuple[FeatureRange, ...]]] = {}
        """The epoch and the software of each broker's last admitted incarnation."""

    @property
    def levels(self) -> dict[str, int]:
        """The finalised levels. A new cluster has none: its first admission finalises them."""
        image = self._image
        return image.features if image.states or keys.FEATURES in image.mod_revs else {}

    def store_changed(self, batch: Batch) -> None:
        """Check one revision, before any broker receives it."""
        self._check_controller(batch)
        known = keys.FEATURES in self._image.mod_revs
        delta = self._image.apply(batch)
        if delta.features and known:
            self._site.world.count("feature level changed")
        for key, kv in batch.changes:
            if key.startswith(keys.BROKER_IDS) and kv is not None:
                broker = int(key[len(keys.BROKER_IDS) :])
                found = decode_broker(broker, kv.create_rev, kv.value)
                self._registered[broker] = found.epoch, found.features
        changed = set(self._image.states if delta.features else ())
        for broker, state in self._image.states.items():
            epoch, software = self._registered[broker]
            if state.epoch == epoch and self._admitted.get(broker) != (epoch, software):
                self._admitted[broker] = epoch, software
                changed.add(broker)
            if state.features and self._image.tidelog_version < RANGES_IN_STATES:
                what = f"the state of broker {broker} has ranges at level"
                self._report("fields-match-level", f"{what} {self._image.tidelog_version}")
        for broker in changed:
            # A restarted broker that is not admitted yet is checked with its admission.
            epoch, software = self._admitted[broker]
            waits = keys.broker_id(broker) in self._image.mod_revs
            waits = waits and self._registered[broker][0] != epoch
            if not waits and unsupported(self.levels, software) is not None:
                what = f"broker {broker} is registered and {_describe(software)}"
                self._report("levels-supported", f"{what}; the level is {self._level}")

    def _check_controller(self, batch: Batch) -> None:
        """Check that the controller that wrote this revision supports the levels before it."""
        claim = self._image.controller
        written = [key for key, _ in batch.changes if not key.startswith(_NOT_BY_CONTROLLERS)]
        if claim is None or not written:
            return
        software = self._registered[claim.broker][1]
        if unsupported(self.levels, software) is not None:
            what = f"broker {claim.broker}, the controller, {_describe(software)} and wrote"
            what += f" {written[0]} at level {self._level}"
            self._report("unsupported-brokers-stop", what)

    def stepped(self, process: Process) -> None:
        """Check a broker after one of its steps."""
        node = process.node
        assert node is not None
        if (node.acting or node.detached) and unsupported(node.image.features, node.supported):
            what = f"broker {process.id} {_describe(node.supported)} and serves at level"
            self._report("unsupported-brokers-stop", f"{what} {node.image.tidelog_version}")

    @property
    def _level(self) -> int:
        return self._image.tidelog_version


def software(lowest: int, highest: int) -> tuple[FeatureRange, ...]:
    """Return the ranges of software that supports these levels of `tidelog.version`."""
    others = [one for one in SUPPORTED if one.name != TIDELOG_VERSION]
    return (*others, FeatureRange(TIDELOG_VERSION, lowest, highest))


def _describe(ranges: tuple[FeatureRange, ...]) -> str:
    return f"supports {TIDELOG_VERSION} {range_of(ranges, TIDELOG_VERSION)}"
