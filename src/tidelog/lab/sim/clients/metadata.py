"""How clients find leaders: they look at some broker's image, which may be out of date."""

from random import Random

from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.sim.machine.process import Site


def _some_broker_up(site: Site, random: Random) -> BrokerId | None:
    up = [broker for broker, process in site.brokers.items() if process.node is not None]
    return random.choice(up) if up else None


def find_leader(site: Site, random: Random, partition: TopicPartition) -> BrokerId | None:
    """Who leads, as some broker believes."""
    broker = _some_broker_up(site, random)
    if broker is None:
        return None
    node = site.brokers[broker].node
    known = None if node is None else node.image.partition(*partition)
    return None if known is None else known.leader


def find_controller(site: Site, random: Random) -> BrokerId | None:
    """Who is the controller, as some broker believes."""
    broker = _some_broker_up(site, random)
    node = None if broker is None else site.brokers[broker].node
    claim = None if node is None else node.image.controller
    return None if claim is None else claim.broker
