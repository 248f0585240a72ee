"""How clients find leaders: they look at some broker's image, which may be out of date."""

from random import Random

from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.sim.machine.process import Site


def find_broker(site: Site, random: Random) -> BrokerId | None:
    """Some broker that is up: it knows whom to ask."""
    up = [broker for broker, process in site.brokers.items() if process.node is not None]
    return random.choice(up) if up else None


def find_leader(site: Site, random: Random, partition: TopicPartition) -> BrokerId | None:
    """Who leads, as some broker believes."""
    broker = find_broker(site, random)
    if broker is None:
        return None
    node = site.brokers[broker].node
    known = None if node is None else node.image.partition(*partition)
    return None if known is None else known.leader
