"""Where things lie in the metadata store. A cluster's own prefix is the store's business."""

from tidelog.core.types import BrokerId, TopicId

CONTROLLER = "controller"
CONTROLLER_EPOCH = "controller_epoch"
BROKER_IDS = "brokers/ids/"
BROKER_STATES = "brokers/state/"
TOPIC_NAMES = "topics/name/"
TOPIC_IDS = "topics/id/"
CONFIGS = "config/"
TOPIC_CONFIGS = "config/topic/"
BROKER_CONFIGS = "config/broker/"
DEFAULT_CONFIG = "config/broker/_default"
"""Of the whole cluster, under the brokers' names for settings, as a broker's own."""
PRODUCER_IDS = "ids/producer"
"""The first producer id that nobody was given yet."""


def broker_id(broker: BrokerId) -> str:
    """Ephemeral, written by the broker: it is online. Its create revision is the broker epoch."""
    return f"{BROKER_IDS}{broker}"


def broker_state(broker: BrokerId) -> str:
    """Durable, written by the controller: the broker is registered. It holds the epoch that
    was admitted last and whether it is fenced; only UnregisterBroker deletes it."""
    return f"{BROKER_STATES}{broker}"


def topic_name(topic: str) -> str:
    """The commit point of a topic's creation and of adding partitions to it."""
    return f"{TOPIC_NAMES}{topic}"


def topic_id(topic: TopicId) -> str:
    """The prefix of a topic's partitions; it ends in a slash so that no neighbour matches."""
    return f"{TOPIC_IDS}{topic.hex()}/"


def partition(topic: TopicId, index: int) -> str:
    """One partition's registration."""
    return f"{TOPIC_IDS}{topic.hex()}/{index:06d}"


def topic_config(topic: str) -> str:
    """A topic's own configuration, as a JSON object of strings."""
    return f"{TOPIC_CONFIGS}{topic}"


def broker_config(broker: BrokerId | None) -> str:
    """What was set for one broker, or for all of them."""
    return DEFAULT_CONFIG if broker is None else f"{BROKER_CONFIGS}{broker}"
