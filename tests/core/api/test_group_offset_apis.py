"""OffsetCommit, OffsetFetch and OffsetDelete: existing and missing topics."""

from typing import Any

import pytest
from group_requests import ORDERS_ID, UNKNOWN_ID, ask, code, versions

from tidelog.core.api.handlers.committed_offsets import (
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tidelog.core.types import TopicPartition

COMMIT, FETCH, TXN_COMMIT, DELETE = 8, 9, 28, 47


def committing(*topics: tuple[str, bytes, list[int]], **request: Any) -> dict[str, Any]:
    return {
        "group_id": "readers",
        "generation_id_or_member_epoch": 3,
        "member_id": "app-1",
        "topics": [
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": 10 + index,
                        "committed_leader_epoch": 5,
                        "committed_metadata": "note",
                    }
                    for index in partitions
                ],
            }
            for name, topic_id, partitions in topics
        ],
        **request,
    }


def committed(response: Any) -> list[tuple[Any, int, ErrorCode]]:
    return [
        (topic.get("name") or topic["topic_id"], partition["partition_index"], code(partition))
        for topic in response["topics"]
        for partition in topic["partitions"]
    ]


@pytest.mark.parametrize("version", versions(COMMIT))
def test_committing(version: int) -> None:
    asked = committing(
        ("orders", ORDERS_ID, [1, 0]), group_instance_id="first", retention_time_ms=1000
    )
    answer = OffsetCommitResponse(
        (
            PartitionError("orders", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            PartitionError("orders", 0, ErrorCode.NONE),
        )
    )
    response, coordinator = ask(offset_commit, COMMIT, version, asked, answer)
    epoch = 5 if version >= 6 else None
    assert coordinator.only == OffsetCommit(
        "readers",
        3,
        "app-1",
        "first" if version >= 7 else None,
        [
            OffsetToCommit("orders", 1, 11, epoch, "note", ORDERS_ID),
            OffsetToCommit("orders", 0, 10, epoch, "note", ORDERS_ID),
        ],
        1000 if version <= 4 else None,
        version,
    )
    topic = "orders" if version < 10 else ORDERS_ID
    assert committed(response) == [
        (topic, 1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (topic, 0, ErrorCode.NONE),
    ]


def committing_in_transaction(*topics: tuple[str, bytes, list[int]]) -> dict[str, Any]:
    return {
        **committing(*topics),
        "transactional_id": "t",
        "producer_id": 7,
        "producer_epoch": 2,
        "generation_id": 3,
        "group_instance_id": "first",
    }


@pytest.mark.parametrize("version", versions(TXN_COMMIT))
def test_committing_in_a_transaction(version: int) -> None:
    asked = committing_in_transaction(("ghosts", b"", [0]), ("orders", ORDERS_ID, [1, 0]))
    answer = TxnOffsetCommitResponse(
        (
            PartitionError("orders", 1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            PartitionError("orders", 0, ErrorCode.NONE),
        )
    )
    response, coordinator = ask(txn_offset_commit, TXN_COMMIT, version, asked, answer)
    epoch = 5 if version >= 2 else None
    named = version >= 3
    assert coordinator.only == TxnOffsetCommit(
        "t",
        "readers",
        7,
        2,
        3 if named else -1,
        "app-1" if named else "",
        "first" if named else None,
        [
            OffsetToCommit("orders", 1, 11, epoch, "note", ORDERS_ID),
            OffsetToCommit("orders", 0, 10, epoch, "note", ORDERS_ID),
        ],
        version,
    )
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert committed(response) == [
        ("ghosts", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 1, loading if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("orders", 0, ErrorCode.NONE),
    ]


def test_optional_fields_of_a_commit() -> None:
    asked = committing(("orders", ORDERS_ID, [0]), retention_time_ms=-1)
    [partition] = asked["topics"][0]["partitions"]
    partition.update(committed_metadata=None, committed_leader_epoch=-1)
    answer = OffsetCommitResponse((PartitionError("orders", 0, ErrorCode.NONE),))
    for version in (2, 4, 9):
        _, coordinator = ask(offset_commit, COMMIT, version, asked, answer)
        assert coordinator.only.retention_time_ms is None
        assert coordinator.only.offsets == [OffsetToCommit("orders", 0, 10, None, "", ORDERS_ID)]


def test_commit_to_missing_topics_and_partitions_fails_separately() -> None:
    asked = committing(("ghosts", b"", [0, 1]), ("orders", b"", [2, 1, -1]))
    answer = OffsetCommitResponse((PartitionError("orders", 1, ErrorCode.ILLEGAL_GENERATION),))
    response, coordinator = ask(offset_commit, COMMIT, 9, asked, answer)
    assert [(at.topic, at.partition) for at in coordinator.only.offsets] == [("orders", 1)]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(response) == [
        ("ghosts", 0, missing),
        ("ghosts", 1, missing),
        ("orders", 2, missing),
        ("orders", 1, ErrorCode.ILLEGAL_GENERATION),
        ("orders", -1, missing),
    ]


@pytest.mark.parametrize("topic_id", [UNKNOWN_ID, bytes(16)])
def test_a_commit_to_an_unknown_id(topic_id: bytes) -> None:
    response, coordinator = ask(offset_commit, COMMIT, 10, committing(("", topic_id, [0])))
    assert coordinator.asked == []
    assert committed(response) == [(topic_id, 0, ErrorCode.UNKNOWN_TOPIC_ID)]


# -- fetch ---------------------------------------------------------------------------------


def fetching(version: int, topics: list[dict[str, Any]] | None, **request: Any) -> dict[str, Any]:
    if version >= 8:
        return {"groups": [{"group_id": "readers", "topics": topics}], **request}
    return {"group_id": "readers", "topics": topics, **request}


def group_of(version: int, response: Any) -> Any:
    if version < 8:
        return response
    [group] = response["groups"]
    assert group["group_id"] == "readers"
    return group


FETCHED = OffsetFetchResponse(
    ErrorCode.NONE,
    (
        FetchedOffset("orders", 1, 12, 5, "note", ErrorCode.NONE),
        FetchedOffset("orders", 0, -1, None, "", ErrorCode.NONE),
    ),
)


@pytest.mark.parametrize("version", versions(FETCH))
def test_fetching(version: int) -> None:
    topics = [{"name": "orders", "topic_id": ORDERS_ID, "partition_indexes": [1, 0]}]
    asked = fetching(version, topics, require_stable=True)
    response, coordinator = ask(offset_fetch, FETCH, version, asked, FETCHED)
    partitions = [TopicPartition("orders", 1), TopicPartition("orders", 0)]
    assert coordinator.only == OffsetFetch("readers", partitions, version >= 7)
    group = group_of(version, response)
    assert group.get("error_code", 0) == ErrorCode.NONE
    [topic] = group["topics"]
    if version >= 10:
        assert topic["topic_id"] == ORDERS_ID
    else:
        assert topic["name"] == "orders"
    for partition in topic["partitions"]:
        assert partition.pop("committed_leader_epoch", None) == (
            None if version < 5 else 5 if partition["partition_index"] else -1
        )
    assert topic["partitions"] == [
        {"partition_index": 1, "committed_offset": 12, "metadata": "note", "error_code": 0},
        {"partition_index": 0, "committed_offset": -1, "metadata": "", "error_code": 0},
    ]


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_fetching_everything(version: int) -> None:
    """A deleted topic has only a name, which version 10 can't contain."""
    gone = FetchedOffset("ghosts", 0, 3, None, "", ErrorCode.NONE)
    fetched = OffsetFetchResponse(ErrorCode.NONE, (*FETCHED.partitions, gone))
    asked = fetching(version, None)
    response, coordinator = ask(offset_fetch, FETCH, version, asked, fetched)
    assert coordinator.only.partitions is None
    topics = group_of(version, response)["topics"]
    if version >= 10:
        assert [topic["topic_id"] for topic in topics] == [ORDERS_ID]
    else:
        assert [topic["name"] for topic in topics] == ["orders", "ghosts"]


@pytest.mark.parametrize("version", versions(FETCH))
def test_refused_offset_fetch(version: int) -> None:
    topics = [{"name": "orders", "topic_id": ORDERS_ID, "partition_indexes": [1]}]
    refused = OffsetFetchResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response, _ = ask(offset_fetch, FETCH, version, fetching(version, topics), refused)
    group = group_of(version, response)
    if version >= 2:
        assert code(group) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert group["topics"] == []
        return
    [topic] = group["topics"]
    [partition] = topic["partitions"]
    assert code(partition) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (partition["committed_offset"], partition["metadata"]) == (-1, "")


def test_offsets_of_deleted_topics_can_be_fetched_by_name() -> None:
    topics = [{"name": "ghosts", "partition_indexes": [0]}]
    fetched = OffsetFetchResponse(
        ErrorCode.NONE, (FetchedOffset("ghosts", 0, 3, None, "", ErrorCode.NONE),)
    )
    response, _ = ask(offset_fetch, FETCH, 9, fetching(9, topics), fetched)
    assert group_of(9, response)["topics"][0]["partitions"][0]["committed_offset"] == 3


def test_unknown_ids_in_a_fetch() -> None:
    topics = [
        {"topic_id": UNKNOWN_ID, "partition_indexes": [4]},
        {"topic_id": ORDERS_ID, "partition_indexes": [1, 0]},
    ]
    response, coordinator = ask(offset_fetch, FETCH, 10, fetching(10, topics), FETCHED)
    assert coordinator.only.partitions == [("orders", 1), ("orders", 0)]
    known, unknown = group_of(10, response)["topics"]
    assert known["topic_id"] == ORDERS_ID
    assert unknown["topic_id"] == UNKNOWN_ID
    [partition] = unknown["partitions"]
    assert (partition["partition_index"], partition["committed_offset"]) == (4, -1)
    assert code(partition) is ErrorCode.UNKNOWN_TOPIC_ID


def test_each_group_has_its_own_response() -> None:
    topics = [{"name": "orders", "partition_indexes": [1, 0]}]
    asked = {
        "groups": [
            {"group_id": "readers", "topics": topics},
            {"group_id": "others", "topics": None},
        ]
    }
    elsewhere = OffsetFetchResponse(ErrorCode.NOT_COORDINATOR)
    response, coordinator = ask(offset_fetch, FETCH, 8, asked, FETCHED, elsewhere)
    assert [one.group_id for one in coordinator.asked] == ["readers", "others"]
    first, second = response["groups"]
    assert (first["group_id"], code(first), len(first["topics"])) == ("readers", 0, 1)
    assert (second["group_id"], code(second)) == ("others", ErrorCode.NOT_COORDINATOR)


def test_all_offsets_of_a_group_are_returned_once() -> None:
    some = {"group_id": "a", "topics": [{"name": "orders", "partition_indexes": [0]}]}
    everything = {"group_id": "a", "topics": None}
    nothing = OffsetFetchResponse(ErrorCode.NONE, ())
    asked = {"groups": [some, everything, everything, some], "require_stable": False}
    response, coordinator = ask(offset_fetch, FETCH, 8, asked, nothing, nothing, nothing)
    assert [one.partitions is None for one in coordinator.asked] == [False, True, False]
    assert len(response["groups"]) == 3


def test_offset_fetch_without_groups_sends_no_request() -> None:
    response, coordinator = ask(offset_fetch, FETCH, 9, {"groups": []})
    assert coordinator.asked == []
    assert response["groups"] == []


# -- delete --------------------------------------------------------------------------------


def deleting(group_id: str, **topics: list[int]) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topics": [
            {"name": name, "partitions": [{"partition_index": index} for index in partitions]}
            for name, partitions in topics.items()
        ],
    }


def test_deleting_offsets() -> None:
    asked = deleting("readers", ghosts=[0], orders=[0, 9, 1])
    answer = OffsetDeleteResponse(
        ErrorCode.NONE,
        (
            PartitionError("orders", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
            PartitionError("orders", 1, ErrorCode.NONE),
        ),
    )
    response, coordinator = ask(offset_delete, DELETE, 0, asked, answer)
    assert coordinator.only == OffsetDelete(
        "readers", [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    )
    assert committed(response) == [
        ("ghosts", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        ("orders", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 1, ErrorCode.NONE),
    ]


def test_unknown_group_is_reported_before_unknown_topics() -> None:
    missing = OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND)
    response, coordinator = ask(offset_delete, DELETE, 0, deleting("x", ghosts=[0]), missing)
    assert coordinator.only.partitions == []
    assert code(response) is ErrorCode.GROUP_ID_NOT_FOUND
    assert response["topics"] == []


def test_offsets_of_a_group_without_a_name_are_not_deleted() -> None:
    response, coordinator = ask(offset_delete, DELETE, 0, deleting("", orders=[0]))
    assert code(response) is ErrorCode.INVALID_GROUP_ID
    assert coordinator.asked == []
