"""Given the results of Kafka's coordinator, the handlers return Kafka's bytes."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from group_requests import Image, ask

from tidelog.core.api.handlers.committed_offsets import (
    offset_commit,
    offset_delete,
    offset_fetch,
)
from tidelog.core.api.handlers.coordinators import find_coordinator
from tidelog.core.api.handlers.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from tidelog.core.coordinator.lookup import FindCoordinatorResponse
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as groups
from tidelog.core.wire.codec import decode_request, decode_response
from tidelog.core.wire.frames import parse_request_header

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "wire.jsonl.gz"


def known(number: int) -> int | None:
    return None if number == -1 else number


def error(struct: Any) -> ErrorCode:
    return ErrorCode(struct["error_code"])


def name_of(topic: Any) -> str:
    return str(topic.get("name") or topic["topic_id"].hex())


def found(told: Any) -> list[object]:
    return [
        FindCoordinatorResponse(error(one), one["node_id"], one["host"], one["port"])
        for one in told.get("coordinators", [told])
    ]


def joined(told: Any) -> list[object]:
    members = tuple(
        groups.JoinedMember(one["member_id"], one["group_instance_id"], one["metadata"])
        for one in told["members"]
    )
    return [
        groups.JoinGroupResponse(
            error(told),
            told["member_id"],
            told["generation_id"],
            told.get("protocol_type"),
            told["protocol_name"] or None,
            told["leader"],
            told.get("skip_assignment", False),
            members,
        )
    ]


def synced(told: Any) -> list[object]:
    names = told.get("protocol_type"), told.get("protocol_name")
    return [groups.SyncGroupResponse(error(told), *names, told["assignment"])]


def beaten(told: Any) -> list[object]:
    return [groups.HeartbeatResponse(error(told))]


def left(told: Any) -> list[object]:
    members = tuple(
        groups.LeftMember(one["member_id"], one["group_instance_id"], error(one))
        for one in told.get("members", [])
    )
    return [groups.LeaveGroupResponse(error(told), members)]


def partition_errors(told: Any) -> tuple[groups.PartitionError, ...]:
    return tuple(
        groups.PartitionError(name_of(topic), one["partition_index"], error(one))
        for topic in told["topics"]
        for one in topic["partitions"]
    )


def committed(told: Any) -> list[object]:
    return [groups.OffsetCommitResponse(partition_errors(told))]


def deleted_offsets(told: Any) -> list[object]:
    return [groups.OffsetDeleteResponse(error(told), partition_errors(told))]


def fetched(told: Any) -> list[object]:
    return [
        groups.OffsetFetchResponse(
            ErrorCode(group.get("error_code", 0)),
            tuple(
                groups.FetchedOffset(
                    name_of(topic),
                    one["partition_index"],
                    one["committed_offset"],
                    known(one.get("committed_leader_epoch", -1)),
                    one["metadata"],
                    error(one),
                )
                for topic in group["topics"]
                for one in topic["partitions"]
            ),
        )
        for group in told.get("groups", [told])
    ]


def described(told: Any) -> list[object]:
    return [
        groups.DescribeGroupResponse(
            error(one),
            one["group_id"],
            one["group_state"],
            one["protocol_type"],
            one["protocol_data"],
            tuple(groups.DescribedMember(**member) for member in one["members"]),
            one.get("error_message"),
        )
        for one in told["groups"]
    ]


def listed(told: Any) -> list[object]:
    found = tuple(groups.ListedGroup(**group) for group in told["groups"])
    return [groups.ListGroupsResponse(error(told), found)]


def deleted_groups(told: Any) -> list[object]:
    return [groups.DeleteGroupResponse(error(one)) for one in told["results"]]


HANDLERS: dict[int, tuple[Any, Callable[[Any], list[object]]]] = {
    8: (offset_commit, committed),
    9: (offset_fetch, fetched),
    10: (find_coordinator, found),
    11: (join_group, joined),
    12: (heartbeat, beaten),
    13: (leave_group, left),
    14: (sync_group, synced),
    15: (describe_groups, described),
    16: (list_groups, listed),
    42: (delete_groups, deleted_groups),
    47: (offset_delete, deleted_offsets),
}
"""The handler of each API, and what a coordinator must have said for an answer of Kafka's."""


class WholeImage(Image):
    """An image that has every requested topic."""

    def __init__(self, request: Any) -> None:
        topics = list(request.get("topics") or [])
        for group in request.get("groups", []):
            if isinstance(group, dict):
                topics += group["topics"] or []
        super().__init__(
            {topic.get("topic_id", name_of(topic)): name_of(topic) for topic in topics}
        )

    def partition(self, topic: str, _index: int) -> object | None:
        return self.topics.get(topic)


def exchanges() -> list[tuple[int, int, str, Any, Any]]:
    """Yield API, version, client, request and response."""
    found = []
    for line in gzip.decompress(DATA.read_bytes()).splitlines():
        exchange = json.loads(line)
        api_key, version = exchange["api_key"], exchange["api_version"]
        if api_key not in HANDLERS:
            continue
        request, response = (bytes.fromhex(exchange[part]) for part in ("request", "response"))
        header = parse_request_header(request)
        asked = decode_request(api_key, version, request, header.position)
        told = decode_response(api_key, version, response)[1]
        found.append((api_key, version, str(header.client_id), asked, told))
    return found


EXCHANGES = exchanges()


def test_every_group_api_is_among_them() -> None:
    assert {exchange[0] for exchange in EXCHANGES} == set(HANDLERS)
    assert len(EXCHANGES) > 50


@pytest.mark.parametrize("api_key", HANDLERS)
def test_kafkas_answers(api_key: int) -> None:
    """tests/golden checks that the codec encodes Kafka's values to Kafka's bytes."""
    handler, spoken = HANDLERS[api_key]
    for key, version, client_id, asked, told in EXCHANGES:
        if key != api_key:
            continue
        response, coordinator = ask(
            handler,
            key,
            version,
            asked,
            *spoken(told),
            client_id=client_id,
            image=WholeImage(asked),
        )
        assert response == told
        assert coordinator.asked
