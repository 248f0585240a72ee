"""Topic ids (Produce and Fetch from version 13 on) as names, which the rest of the broker uses."""

from collections.abc import Mapping
from typing import TypeAlias

from tidelog.core.node.messages import UNRESOLVED
from tidelog.core.types import TopicId

TopicNames: TypeAlias = Mapping[TopicId, str]


def unresolved(topic_id: TopicId) -> str:
    """A placeholder name for an unknown topic id: not a valid topic name, and different for each
    id, so that two unknown topics of one request stay distinct."""
    return UNRESOLVED + topic_id.hex()
