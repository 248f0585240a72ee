"""Whether an answer to Metadata would name a leader that is known to be gone.

Between the end of a broker's session and the election of other leaders there is a moment,
and it is the moment in which clients ask.
"""

from tidelog.core.api.context import Struct
from tidelog.core.controller.metadata.cluster_image import ClusterImage, partitions_of


def names_a_dead_leader(image: ClusterImage, request: Struct) -> bool:
    """Of the topics asked for, or of any if all are."""
    live = {broker.id for broker in image.brokers.values() if not broker.fenced}
    asked = request["topics"]
    if asked is None:
        # Asked often, and with many partitions: only what the dead had is looked at.
        return any(
            image.partitions[key].leader == broker and image.committed(key)
            for broker, keys in image.in_isr.items()
            if broker not in live
            for key in keys
        )
    names = [
        topic["name"] or image.topic_names.get(topic.get("topic_id", b""), "") for topic in asked
    ]
    return any(
        partition.leader is not None and partition.leader not in live
        for name in names
        if name in image.topics
        for partition in partitions_of(image, image.topics[name])
    )
