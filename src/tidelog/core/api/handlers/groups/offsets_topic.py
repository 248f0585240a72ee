"""Making `__consumer_offsets`, when the first group asks for its coordinator."""

from tidelog.core.api.context import BrokerContext
from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.groups.partitioning import OFFSETS_TOPIC


def offsets_topic(broker: BrokerContext) -> CreateTopicReceived:
    """What to ask of the controller. Compacted: of each group's offset the last one counts."""
    settings = broker.settings
    return CreateTopicReceived(
        0,
        OFFSETS_TOPIC,
        broker.new_topic_id(),
        settings.get("offsets.topic.num.partitions"),
        settings.get("offsets.topic.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.get("offsets.topic.segment.bytes")),
        },
        start_index=broker.start_index(),
    )
