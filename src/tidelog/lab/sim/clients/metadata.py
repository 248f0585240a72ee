"""How clients find leaders: in the metadata image of a random broker, which may be outdated."""

from random import Random

from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.sim.machine.process import Site


def find_broker(site: Site, random: Random) -> BrokerId | None:
    """Return a random broker that is up, or None; it forwards requests to the controller."""
    up = [broker for broker, process in site.brokers.items() if process.node is not None]
    return random.choice(up) if up else None


def find_leader(site: Site, random: Random, partition: TopicPartition) -> BrokerId | None:
    """Return the partition's leader in the image of a random broker, or None if unknown."""
    broker = find_broker(site, random)
    if broker is None:
        return None
    node = site.brokers[broker].node
    known = None if node is None else node.image.partition(*partition)
    return None if known is None else known.leader
