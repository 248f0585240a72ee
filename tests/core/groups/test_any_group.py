"""Groups under random events: members that join, leave, change and fall silent, transactions that
end and do not, writes that fail, and a coordinator that moves. The invariants hold after every
event."""

from typing import Any

from group_talk import CONFIG, RANGE, Talk, subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.core.coordinator.shard import AppendMarker, EndMarker, is_in_doubt
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.groups.membership.rebalance import Timer, TimerKind
from tidelog.core.groups.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_key,
)
from tidelog.core.types import TopicPartition

GROUPS = st.sampled_from(["a", "b"])
INSTANCES = st.sampled_from([None, None, "i1", "i2"])
PROTOCOLS = st.sampled_from(
    [
        RANGE,
        [("range", subscription("events", "other"))],
        [("sticky", b"s"), ("range", subscription("other"))],
        [("sticky", b"s")],
    ]
)
PARTITIONS = st.sampled_from([("events", 0), ("events", 1), ("other", 0)])
FAILURES = st.sampled_from(
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
)
SMALL = CONFIG._replace(
    group_initial_rebalance_delay_ms=500,
    group_max_size=4,
    offsets_retention_ms=200_000,
    offsets_retention_check_interval_ms=50_000,
)


class Client:
    """A client's knowledge of its own membership."""

    def __init__(self, group: str, instance: str | None) -> None:
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.others: tuple[str, ...] = ()


class AnyGroup(RuleBasedStateMachine):
    """Random events; the log holds the appends that succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.talk = Talk(SMALL)
        self.talk.holds = True
        self.clients: list[Client] = []
        self.joins: dict[int, Client] = {}
        self.asked: dict[int, on.Request] = {}
        self.generations: dict[str, tuple[Group, int]] = {}
        self.leaders: dict[tuple[int, int], str] = {}
        self.in_doubt: set[bytes] = set()
        """Keys whose last record is in the log, but in doubt for the coordinator."""
        self.ending: dict[int, bool] = {}
        """Producers whose transaction is ending, and whether it commits: until its marker is
        written they commit nothing."""
        self.markers: dict[int, int] = {}
        """Producers of the markers that are not written yet, by number."""

    # -- what happens ---------------------------------------------------------------------

    def ask(self, request: on.Request) -> int:
        requester = self.talk.ask(request)
        self.asked[requester] = request
        self.hear()
        return requester

    def hear(self) -> None:
        """Update the clients from the responses to their joins."""
        for requester, client in list(self.joins.items()):
            response = self.talk.answers.get(requester)
            if isinstance(response, on.JoinGroupResponse):
                del self.joins[requester]
                if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    client.member_id = response.member_id
                    client.generation = response.generation_id
                    client.leads = response.leader == response.member_id
                    client.others = tuple(one.member_id for one in response.members)
                elif response.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                    client.member_id = ""

    def join(self, client: Client, protocols: list[tuple[str, bytes]], version: int) -> None:
        options: dict[str, Any] = {
            "group_id": client.group,
            "group_instance_id": client.instance,
            "protocols": protocols,
            "version": version,
        }
        requester = self.talk.joining(client.member_id, **options)
        self.joins[requester] = client
        self.asked[requester] = on.JoinGroup(
            client.group, 0, 0, client.member_id, None, "", [], "", "", "", version
        )
        self.hear()

    @rule(
        group=GROUPS,
        instance=INSTANCES,
        protocols=PROTOCOLS,
        version=st.sampled_from([3, 4, 5, 9]),
    )
    def somebody_comes(
        self, group: str, instance: str | None, protocols: list[tuple[str, bytes]], version: int
    ) -> None:
        client = Client(group, instance)
        self.clients.append(client)
        self.join(client, protocols, version)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), protocols=PROTOCOLS)
    def somebody_joins_again(self, data: st.DataObject, protocols: list[tuple[str, bytes]]) -> None:
        client = data.draw(st.sampled_from(self.clients[-8:]))
        self.join(client, protocols, 5)

    @precondition(lambda self: self.clients)
    @rule(group=GROUPS)
    def all_join_again(self, group: str) -> None:
        """Join again, as clients do in a rebalance."""
        for client in self.clients[-8:]:
            if client.group == group and client.member_id:
                self.join(client, RANGE, 5)

    @precondition(lambda self: self.clients)
    @rule(group=GROUPS)
    def all_ask_for_their_assignment(self, group: str) -> None:
        for client in self.clients[-8:]:
            if client.group == group and client.member_id:
                self.sync(client)

    @precondition(lambda self: self.clients)
    @rule(group=GROUPS)
    def a_group_settles(self, group: str) -> None:
        """Let time pass without faults."""
        clients = [one for one in self.clients[-4:] if one.group == group]
        for _ in range(2):
            for client in clients:
                self.join(client, RANGE, 5)
            self.time_passes(600)
        self.time_passes(31_000 if self.joins else 0)
        for client in clients:
            if client.member_id:
                self.sync(client)
        self.records_are_written(len(self.talk.unwritten))

    @precondition(lambda self: any(one.instance for one in self.clients))
    @rule(data=st.data(), version=st.sampled_from([5, 9]), protocols=PROTOCOLS)
    def an_instance_is_started_again(
        self, data: st.DataObject, version: int, protocols: list[tuple[str, bytes]]
    ) -> None:
        instances = [one for one in self.clients if one.instance]
        before = data.draw(st.sampled_from(instances[-4:]))
        client = Client(before.group, before.instance)
        self.clients.append(client)
        self.join(client, protocols, version)

    def sync(self, client: Client) -> None:
        mine = [(one, f"{one}@{client.generation}".encode()) for one in client.others]
        self.ask(
            on.SyncGroup(
                client.group,
                client.generation,
                client.member_id,
                client.instance,
                None,
                None,
                mine if client.leads else [],
            )
        )

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def somebody_is_heard_of(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients[-8:]))
        self.ask(on.Heartbeat(client.group, client.generation, client.member_id, client.instance))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients[-8:]))
        by_id = client.instance is None or data.draw(st.booleans())
        leaving = on.LeavingMember(client.member_id if by_id else "", client.instance)
        self.ask(on.LeaveGroup(client.group, [leaving]))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=PARTITIONS, offset=st.integers(0, 99))
    def a_member_commits(
        self, data: st.DataObject, partition: tuple[str, int], offset: int
    ) -> None:
        client = data.draw(st.sampled_from(self.clients[-8:]))
        self.ask(
            on.OffsetCommit(
                client.group,
                client.generation,
                client.member_id,
                client.instance,
                [on.OffsetToCommit(*partition, offset, 1, "m")],
            )
        )

    @rule(group=GROUPS, partition=PARTITIONS, offset=st.integers(0, 99))
    def anybody_commits(self, group: str, partition: tuple[str, int], offset: int) -> None:
        offsets = [on.OffsetToCommit(*partition, offset)]
        self.ask(on.OffsetCommit(group, -1, "", None, offsets))

    @rule(
        group=GROUPS,
        partition=PARTITIONS,
        offset=st.integers(0, 99),
        producer_id=st.sampled_from([1, 2, 3]),
    )
    def a_transaction_commits_an_offset(
        self, group: str, partition: tuple[str, int], offset: int, producer_id: int
    ) -> None:
        if producer_id not in self.ending:
            offsets = [on.OffsetToCommit(*partition, offset)]
            self.ask(on.TxnOffsetCommit("t", group, producer_id, 0, -1, "", None, offsets))

    @rule(producer_id=st.sampled_from([1, 2, 3]), committed=st.booleans())
    def a_transaction_ends(self, producer_id: int, committed: bool) -> None:
        committed = self.ending.setdefault(producer_id, committed)
        number = self.talk.end_transaction(producer_id, committed=committed)
        self.markers[number] = producer_id
        self.hear_of_markers()

    def hear_of_markers(self) -> None:
        for number, producer_id in list(self.markers.items()):
            error = self.talk.completions.get(number)
            if error is not None:
                del self.markers[number]
            if error is ErrorCode.NONE and producer_id not in self.markers.values():
                self.ending.pop(producer_id, None)

    @rule(group=GROUPS, partition=PARTITIONS)
    def an_offset_is_deleted(self, group: str, partition: tuple[str, int]) -> None:
        self.ask(on.OffsetDelete(group, [TopicPartition(*partition)]))

    @rule(group=GROUPS)
    def a_group_is_deleted(self, group: str) -> None:
        self.ask(on.DeleteGroup(group))

    @rule(topic=st.sampled_from(["events", "other"]))
    def a_topic_is_deleted(self, topic: str) -> None:
        self.talk.shard.topic_deleted({topic}, self.talk.now)
        self.talk.settle()

    @rule(ms=st.sampled_from([1, 400, 3_000, 9_000, 31_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.talk.pass_ms(ms)
        self.hear()

    @precondition(lambda self: self.talk.unwritten)
    @rule(count=st.integers(1, 10))
    def records_are_written(self, count: int) -> None:
        for _ in range(min(count, len(self.talk.unwritten))):
            append = self.talk.unwritten[0]
            if not isinstance(append, AppendMarker) and append.producer is None:
                self.in_doubt.difference_update(key for key, _ in append.records)
            self.talk.write()
            self.hear_of_markers()
        self.hear()

    @precondition(lambda self: self.talk.unwritten)
    @rule(error=FAILURES)
    def records_are_not_written(self, error: ErrorCode) -> None:
        append = self.talk.unwritten[0]
        if is_in_doubt(error):
            if isinstance(append, AppendMarker):
                pending = self.pending_offsets().get(append.marker.producer.id, {})
                self.in_doubt.update(encode_key(key) for key in pending)
            self.talk.store(append)
        self.talk.write(error)
        self.hear_of_markers()
        self.hear()
        if is_in_doubt(error) and not isinstance(append, AppendMarker) and append.producer is None:
            records = append.records
            self.in_doubt.difference_update(key for key, value in records if value is None)
            self.in_doubt.update(key for key, value in records if value is not None)

    @rule()
    def the_coordinator_moves(self) -> None:
        """Pending appends are lost, and waiting requests fail."""
        self.talk.shard.unload(ErrorCode.NOT_COORDINATOR)
        self.talk.settle()
        self.hear()
        assert not self.unanswered()
        self.hear_of_markers()
        assert not self.markers
        answers, asked = self.talk.answers, self.talk._asked
        self.talk = self.talk.reload()
        self.talk.holds = True
        self.talk.answers, self.talk._asked = answers, asked
        # An empty group that was not written is undone: the generation may be the former one.
        self.generations.clear()
        self.leaders.clear()
        self.in_doubt.clear()

    # -- what holds -----------------------------------------------------------------------

    @property
    def groups(self) -> dict[str, Group]:
        return self.talk.shard._groups

    def unanswered(self) -> set[int]:
        return self.asked.keys() - self.talk.answers.keys()

    @invariant()
    def whoever_is_not_answered_is_waiting(self) -> None:
        members = [one for group in self.groups.values() for one in group.members.values()]
        waiting = {one.join_requester for one in members} | {one.sync_requester for one in members}
        for requester in self.unanswered():
            if isinstance(self.asked[requester], on.JoinGroup | on.SyncGroup):
                assert requester in waiting
            else:
                assert self.talk.unwritten, "it waits for a write"

    @invariant()
    def groups_are_in_order(self) -> None:
        for name, group in self.groups.items():
            members = group.members
            assert group.awaiting_join == sum(
                1 for one in members.values() if one.join_requester is not None
            )
            assert all(
                one.join_requester is None or one.sync_requester is None for one in members.values()
            )
            assert (group.leader_id is None) == (not members)
            assert group.leader_id is None or group.leader_id in members
            assert group.static_members == {
                one.group_instance_id: one.member_id for one in members.values() if one.is_static
            }
            assert not group.pending_members & members.keys()
            assert group.pending_sync <= members.keys()
            assert not members or group.select_protocol()
            assert not group.is_unused
            self.check_state(name, group)

    def check_state(self, name: str, group: Group) -> None:
        due = self.talk.shard._timers._due
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.members
            assert all(group.protocol_name in one.protocols for one in group.members.values())
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not group.members
        if group.state is GroupState.PREPARING_REBALANCE:
            assert Timer(TimerKind.JOIN, name) in due
        else:
            assert Timer(TimerKind.JOIN, name) not in due
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert all(one.join_requester is None for one in group.members.values())
        else:
            assert all(one.sync_requester is None for one in group.members.values())
        if group.pending_sync:
            assert Timer(TimerKind.SYNC, name) in due
        for member_id, member in group.members.items():
            session = Timer(TimerKind.SESSION, name, member_id)
            assert session in due or member.is_excused, "somebody would stay for ever"
        for member_id in group.pending_members:
            assert Timer(TimerKind.PENDING, name, member_id) in due

    @invariant()
    def generations_never_fall(self) -> None:
        for name, group in self.groups.items():
            known, generation = self.generations.get(name, (group, 0))
            if known is group:
                assert group.generation_id >= generation
            self.generations[name] = (group, group.generation_id)

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        """A static member may change its id."""
        for group in self.groups.values():
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                assert group.leader_id is not None
                leader = group.members[group.leader_id]
                told = leader.group_instance_id or leader.member_id
                key = (id(group), group.generation_id)
                assert self.leaders.setdefault(key, told) == told

    @invariant()
    def what_is_committed_is_what_was_written(self) -> None:
        offsets, _ = self.logged()
        for name in ("a", "b"):
            request = on.OffsetFetch(name, None)
            answer = self.talk.get(request, on.OffsetFetchResponse)
            found = {
                OffsetKey(name, one.topic, one.partition): one.committed_offset
                for one in answer.partitions
            }
            written = {key: value for key, value in offsets.items() if key.group == name}
            for key in found.keys() | written.keys():
                assert found.get(key) == written.get(key) or encode_key(key) in self.in_doubt

    @invariant()
    def a_stable_group_is_what_was_written(self) -> None:
        _, written = self.logged()
        for name, group in self.groups.items():
            if group.state is not GroupState.STABLE or self.talk.unwritten:
                continue
            if encode_key(GroupKey(name)) in self.in_doubt:
                continue
            value = written[name]
            assert (value.generation, value.leader) == (group.generation_id, group.leader_id)
            assert (value.protocol_type, value.protocol) == (
                group.protocol_type,
                group.protocol_name,
            )
            assert {one.member_id: one.assignment for one in value.members} == {
                one.member_id: one.assignment for one in group.members.values()
            }

    @invariant()
    def offsets_of_open_transactions_are_unstable(self) -> None:
        pending = {key for keys in self.pending_offsets().values() for key in keys}
        for name in ("a", "b"):
            partitions = [("events", 0), ("events", 1), ("other", 0)]
            wanted = [TopicPartition(*one) for one in partitions]
            request = on.OffsetFetch(name, wanted, True)
            answer = self.talk.get(request, on.OffsetFetchResponse)
            for one in answer.partitions:
                key = OffsetKey(name, one.topic, one.partition)
                if key in pending and encode_key(key) not in self.in_doubt:
                    assert one.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                elif one.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    assert self.talk.unwritten or encode_key(key) in self.in_doubt

    def logged(self) -> tuple[dict[OffsetKey, int], dict[str, GroupValue]]:
        """The contents of the log, decoded without a shard."""
        offsets, _, groups = self.decoded()
        return {key: offset for key, (_, offset) in offsets.items()}, groups

    def pending_offsets(self) -> dict[int, dict[OffsetKey, tuple[int, int]]]:
        """The offsets of open transactions in the log, by producer id."""
        return self.decoded()[1]

    def decoded(
        self,
    ) -> tuple[
        dict[OffsetKey, tuple[int, int]],
        dict[int, dict[OffsetKey, tuple[int, int]]],
        dict[str, GroupValue],
    ]:
        """Offsets, each with the place of its record in the log; those of open transactions; and
        groups."""
        offsets: dict[OffsetKey, tuple[int, int]] = {}
        pending: dict[int, dict[OffsetKey, tuple[int, int]]] = {}
        groups: dict[str, GroupValue] = {}
        for at, entry in enumerate(self.talk.entries()):
            if isinstance(entry, EndMarker):
                for key, found in pending.pop(entry.producer.id, {}).items():
                    if entry.committed:
                        offsets[key] = max(offsets.get(key, found), found)
                continue
            raw, value, producer_id = entry
            decoded = decode_key(raw)
            if isinstance(decoded, OffsetKey):
                if value is None:
                    offsets.pop(decoded, None)
                    for of_producer in pending.values():
                        of_producer.pop(decoded, None)
                    continue
                into = offsets if producer_id is None else pending.setdefault(producer_id, {})
                into[decoded] = (at, decode_offset_value(value).offset)
            elif isinstance(decoded, GroupKey):
                groups.pop(decoded.group, None)
                if value is not None:
                    groups[decoded.group] = decode_group_value(value)
        return offsets, pending, groups

    def teardown(self) -> None:
        """Without further requests, all are answered and all groups are removed in the end."""
        self.talk.holds = False
        while self.talk.unwritten:
            self.talk.write()
        for producer_id in (1, 2, 3):
            self.a_transaction_ends(producer_id, False)
        self.the_coordinator_moves()  # the next one knows the outcome of all that was in doubt
        self.talk.holds = False
        self.talk.pass_ms(1_000_000)
        assert not self.unanswered()
        assert not self.groups
        assert self.logged() == ({}, {})


AnyGroup.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyGroup = AnyGroup.TestCase
