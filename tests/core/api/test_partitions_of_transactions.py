"""AddPartitionsToTxn: which partitions a client may add to its transaction."""

import pytest
from api_cluster import ADD_PARTITIONS_TO_TXN, INIT_PRODUCER_ID, ApiCluster

from tidelog.core.errors import ErrorCode


@pytest.mark.parametrize("internal", ["__transaction_state", "__consumer_offsets"])
def test_clients_add_no_partition_of_an_internal_topic(internal: str) -> None:
    """The coordinator would write a marker there, and a group's offsets are added by its group."""
    cluster = ApiCluster().start_all()
    cluster.create("orders")
    cluster.coordinator("group")
    broker = cluster.transaction_coordinator("t")
    begun = {"transactional_id": "t", "transaction_timeout_ms": 1000}
    producer = cluster.request(broker, INIT_PRODUCER_ID, begun, 5)
    added = [{"name": internal, "partitions": [0]}, {"name": "orders", "partitions": [0]}]
    fields = {
        "transactional_id": "t",
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"],
        "topics": added,
    }
    asked = {f"v3_and_below_{name}": value for name, value in fields.items()}
    answer = cluster.request(broker, ADD_PARTITIONS_TO_TXN, asked, 3)
    found = {
        topic["name"]: [each["partition_error_code"] for each in topic["results_by_partition"]]
        for topic in answer["results_by_topic_v3_and_below"]
    }
    assert found == {
        internal: [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
        "orders": [ErrorCode.OPERATION_NOT_ATTEMPTED],
    }
