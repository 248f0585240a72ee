"""The keys of the metadata store. The store adds the cluster's own prefix."""

from tidelog.core.types import BrokerId, TopicId

try:  # hashlib would load OpenSSL: 4 MB of memory in each broker
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:  # before Python 3.12
    from _sha256 import sha256  # type: ignore[import-not-found]

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
"""Settings of all brokers, with the brokers' names for settings."""
FEATURES = "features"
"""The finalised level of each feature. Software older than feature levels ignores the key."""
PRODUCER_IDS = "ids/producer"
"""The first producer id that is not allocated."""
SCRAM = "user/scram/"
"""Credentials of users. `tidelog store` shows no values of keys below `user/`."""
USER_BYTES_MAX = 200
"""The longest name of a user, so that its key is not too long for the store."""


ACLS = "acls/"
QUOTAS = "quotas/"


def broker_id(broker: BrokerId) -> str:
    """Ephemeral key of a broker that is online; its create revision is the broker epoch."""
    return f"{BROKER_IDS}{broker}"


def broker_state(broker: BrokerId) -> str:
    """Durable key of a registered broker, written by the controller. It holds the last admitted
    epoch and whether the broker is fenced; only UnregisterBroker deletes it."""
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


def parse_partition(key: str) -> tuple[TopicId, int] | None:
    """Return the topic id and the index in a partition's key; None for other keys."""
    if not key.startswith(TOPIC_IDS):
        return None
    topic, index = key[len(TOPIC_IDS) :].split("/")
    return (bytes.fromhex(topic), int(index)) if index else None


def topic_config(topic: str) -> str:
    """A topic's own configuration, as a JSON object of strings."""
    return f"{TOPIC_CONFIGS}{topic}"


def acl(value: bytes) -> str:
    """The key of an ACL, by its encoded value: the same ACL is never stored twice."""
    return f"{ACLS}{sha256(value).hexdigest()}"


def quota(entity: bytes) -> str:
    """The quotas of one entity, by its encoded parts: names may be of any length."""
    return f"{QUOTAS}{sha256(entity).hexdigest()}"


def scram(mechanism: str, user: str) -> str:
    """The credential of one user for one mechanism. A user's name may have any characters."""
    return f"{SCRAM}{mechanism}/{user.encode().hex()}"


def parse_scram(key: str) -> tuple[str, str]:
    """Return the mechanism and the user in the key of a credential."""
    mechanism, user = key[len(SCRAM) :].split("/")
    return mechanism, bytes.fromhex(user).decode()


def broker_config(broker: BrokerId | None) -> str:
    """The dynamic settings of one broker, or of all brokers."""
    return DEFAULT_CONFIG if broker is None else f"{BROKER_CONFIGS}{broker}"
