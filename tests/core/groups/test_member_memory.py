"""The memory of members is counted, limited and released."""

from typing import Any

import pytest
from group_talk import GROUP, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.membership import member as member_module
from tidelog.core.groups.membership.member import MemberMemory
from tidelog.core.groups.shard import GroupShard

KIB = 1024


def join(talk: Talk, metadata: int, instance: str, group: str = GROUP) -> Any:
    request = on.JoinGroup(
        group,
        30_000,
        30_000,
        "",
        instance,
        "consumer",
        [("range", bytes(metadata))],
        "client",
        "/host",
        f"fresh-{instance}",
        9,
    )
    talk.shard.handle(instance, request, talk.now)
    talk.settle()
    return talk.answers.get(instance)


def sync(talk: Talk, member: Any, size: int) -> Any:
    assignments = [(member.member_id, bytes(size))]
    request = on.SyncGroup(
        GROUP, member.generation_id, member.member_id, "one", None, None, assignments
    )
    talk.shard.handle("sync", request, talk.now)
    talk.settle()
    return talk.answers["sync"]


@pytest.fixture
def memory() -> MemberMemory:
    return MemberMemory()


@pytest.fixture
def talk(memory: MemberMemory) -> Talk:
    talk = Talk()
    talk.shard = GroupShard(talk.config, talk.now, memory=memory)
    return talk


def test_a_join_that_no_generation_could_hold_is_refused(talk: Talk, memory: MemberMemory) -> None:
    assert join(talk, KIB * KIB, "one").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (memory.held, talk.shard.groups) == (0, [])


def test_a_join_that_does_not_fit_now_can_be_retried(
    talk: Talk, memory: MemberMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "MEMBERS_BYTES_MAX", 200 * KIB)
    assert join(talk, 150 * KIB, "one", "a").error_code is ErrorCode.NONE
    refused = join(talk, 150 * KIB, "two", "b")
    assert refused.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert 150 * KIB < memory.held < 200 * KIB
    talk.pass_ms(31_000)  # the first one sent no heartbeats
    assert memory.held == 0
    assert join(talk, 150 * KIB, "three", "b").error_code is ErrorCode.NONE


def test_assignments_are_counted_and_released(talk: Talk, memory: MemberMemory) -> None:
    member = join(talk, 10, "one")
    before = memory.held
    assert sync(talk, member, 5 * KIB).error_code is ErrorCode.NONE
    assert memory.held == before + 5 * KIB
    talk.pass_ms(31_000)
    assert memory.held == 0


def test_an_assignment_that_does_not_fit_is_refused(
    talk: Talk, memory: MemberMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "MEMBERS_BYTES_MAX", 5 * KIB)
    member = join(talk, 10, "one")
    assert sync(talk, member, 5 * KIB).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_members_from_the_log_are_counted_once(talk: Talk, memory: MemberMemory) -> None:
    member = join(talk, 10 * KIB, "one")
    sync(talk, member, KIB)
    held = memory.held
    again = MemberMemory()
    shard = GroupShard(talk.config, talk.now, memory=again)
    for key, value in talk.log * 2:
        shard.replay(key, value)
    assert again.held == held
    shard.unload(ErrorCode.NOT_COORDINATOR)
    assert again.held == 0
