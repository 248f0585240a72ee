"""Topics by id (Produce 13, Fetch 13 and newer), where the rest of the broker knows names."""

from collections.abc import Mapping
from typing import TypeAlias

from tidelog.core.node.messages import UNRESOLVED
from tidelog.core.types import TopicId

TopicNames: TypeAlias = Mapping[TopicId, str]


def unresolved(topic_id: TopicId) -> str:
    """What to call a topic that nobody here has heard of: no legal name, another for each id,
    so that two unknown topics of one request stay two."""
    return UNRESOLVED + topic_id.hex()
