"""The image equals the store at its revision, and returns what changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.controller.broker_liveness import registration_transaction
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta, partitions_of
from tidelog.core.controller.metadata.metadata_store import Compacted, Delete, Operation, Put
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.controller.metadata.registrations import (
    BrokerState,
    ControllerClaim,
    Endpoint,
    LeaderRecovery,
    PartitionKey,
    PartitionRegistration,
    TopicImage,
    UncleanElection,
)
from tidelog.core.types import TopicPartition

T1, T2 = b"\x01" * 16, b"\x02" * 16


def partition(topic_id: bytes, index: int = 0, leader: int | None = 1) -> PartitionRegistration:
    return PartitionRegistration(topic_id, index, (1, 2), (1,), leader, elr=(2,))


def put_partition(value: PartitionRegistration) -> Put:
    return Put(keys.partition(*value.key), values.encode_partition(value))


def put_topic(name: str, topic_id: bytes, count: int = 1) -> Put:
    return Put(keys.topic_name(name), values.encode_topic(TopicImage(name, topic_id, count)))


def put_state(broker: int, epoch: int, fenced: bool = False, stopping: bool = False) -> Put:
    state = BrokerState(epoch, fenced, stopping)
    return Put(keys.broker_state(broker), values.encode_broker_state(state))


class Watched:
    """A store and an image that follows it."""

    def __init__(self) -> None:
        self.store = Mvcc()
        self.image = ClusterImage()

    def txn(self, *ops: Operation) -> int:
        self.store.txn((), ops)
        return self.store.revision

    def follow(self) -> ImageDelta:
        batches = self.store.watch("", self.image.revision)
        assert not isinstance(batches, Compacted)
        return self.image.apply(*batches)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize(
    "value",
    [
        PartitionRegistration(T1, 3, (1, 2, 3), (1, 2), 1, 4, 7),
        PartitionRegistration(
            T1, 0, (4, 1), (), None, 1, 2, (4,), (1,), (1,), (9,), LeaderRecovery.RECOVERING, 8,
            UncleanElection(1, 1, None, (2,), (), True),
        ),
    ],
    ids=["plain", "all set"],
)  # fmt: skip
def test_partition_survives_the_store(value: PartitionRegistration) -> None:
    assert values.decode_partition(value.key, values.encode_partition(value)) == value


def test_a_topic_is_visible_once_its_name_commits_it(watched: Watched) -> None:
    watched.txn(put_partition(partition(T1)), put_partition(partition(T1, 1)))
    delta = watched.follow()
    key = PartitionKey(T1, 0)
    assert not delta.partitions
    assert watched.image.name_of(key) is None
    assert set(watched.image.uncommitted()) == {key, PartitionKey(T1, 1)}
    watched.txn(put_topic("t", T1, 1))
    delta = watched.follow()
    assert delta.partitions == {key}
    assert delta.topics == {"t"}
    assert watched.image.partition("t", 0) == partition(T1)
    assert watched.image.partition("t", 1) is None
    assert watched.image.partition("u", 0) is None
    assert watched.image.name_of(key) == TopicPartition("t", 0)
    assert set(watched.image.uncommitted()) == {PartitionKey(T1, 1)}
    watched.txn(put_topic("t", T1, 2))
    assert watched.follow().partitions == {PartitionKey(T1, 1)}
    image = watched.image
    assert list(partitions_of(image, image.topics["t"])) == [partition(T1), partition(T1, 1)]


def test_a_deleted_topic_is_named_with_the_id_it_had(watched: Watched) -> None:
    watched.txn(put_partition(partition(T1)), put_topic("t", T1))
    watched.follow()
    watched.txn(Delete(keys.topic_name("t")), Delete(keys.topic_id(T1), prefix=True))
    delta = watched.follow()
    assert delta.deleted_topics == {("t", T1)}
    assert not delta.partitions
    assert not watched.image.partitions
    assert not watched.image.in_isr[1]
    assert not watched.image.in_elr[2]


def test_a_topic_recreated_without_a_watch(watched: Watched) -> None:
    watched.txn(put_partition(partition(T1)), put_topic("t", T1))
    watched.follow()
    watched.txn(Delete(keys.topic_id(T1), prefix=True), put_partition(partition(T2)))
    watched.txn(put_topic("t", T2))
    delta = watched.image.load(watched.store.range(""))
    assert delta.deleted_topics == {("t", T1)}
    assert delta.partitions == {PartitionKey(T2, 0)}
    assert watched.image.topic_names == {T2: "t"}


def test_a_recreation_in_one_delta_shows_no_partition_of_the_old(watched: Watched) -> None:
    watched.txn(put_partition(partition(T1)), put_topic("t", T1))
    watched.txn(put_partition(partition(T2)))
    watched.txn(put_topic("t", T2))
    assert watched.follow().partitions == {PartitionKey(T2, 0)}


def test_changes_are_returned_by_kind(watched: Watched) -> None:
    watched.txn(put_partition(partition(T1)), put_topic("t", T1))
    watched.follow()
    rev = watched.txn(put_partition(partition(T1, leader=None)))
    delta = watched.follow()
    assert (delta.revision, delta.partitions) == (rev, {PartitionKey(T1, 0)})
    assert watched.image.leaderless == {PartitionKey(T1, 0)}
    assert not delta.topics | delta.brokers | delta.configs
    assert not delta.controller
    watched.txn(Put("unknown/key", b""))
    assert watched.follow().revision == watched.image.revision


def test_a_revision_is_applied_once(watched: Watched) -> None:
    watched.txn(Put(keys.topic_config("t"), b'{"a":"1"}'))
    batches = watched.store.watch("", 0)
    assert not isinstance(batches, Compacted)
    watched.image.apply(*batches)
    assert not watched.image.apply(*batches).configs


def test_a_broker_is_fenced_until_the_controller_names_its_epoch(watched: Watched) -> None:
    endpoints = (Endpoint("CLIENT", "localhost", 9092),)
    session = watched.store.open_session()
    result = watched.store.txn(*registration_transaction(1, session, "x", endpoints, "r", 7))
    epoch = watched.store.revision
    assert result.ok  # type: ignore[union-attr]
    assert watched.follow().brokers == {1}
    broker = watched.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.awaits_admission) == (epoch, True, True)
    assert (broker.endpoints, broker.rack, broker.previous_epoch) == (endpoints, "r", 7)
    watched.txn(put_state(1, epoch))
    watched.follow()
    assert watched.image.active == {1}
    assert watched.image.may_lead(1, epoch)
    assert not watched.image.may_lead(1, epoch - 1)
    assert not watched.image.may_lead(2, epoch)
    watched.txn(put_state(1, epoch, stopping=True))
    watched.follow()
    assert watched.image.active == frozenset()
    assert watched.image.may_lead(1, epoch)
    watched.store.expire(session)
    watched.follow()
    assert not watched.image.may_lead(1, epoch)
    assert not watched.image.brokers[1].online
    assert watched.image.brokers[1].admitted_epoch == epoch
    watched.txn(Delete(keys.broker_state(1)))
    watched.follow()
    assert watched.image.brokers == {}


def test_configuration_of_a_topic_falls_back_to_the_clusters(watched: Watched) -> None:
    image = watched.image
    assert image.min_insync_replicas(T1) == 1
    assert not image.unclean_election_allowed(T1)
    watched.txn(
        Put(keys.DEFAULT_CONFIG, values.encode_config({"min.insync.replicas": "2"})),
        put_topic("t", T1, 0),
    )
    watched.follow()
    assert image.min_insync_replicas(T1) == 2
    config = {"min.insync.replicas": "3", "unclean.leader.election.enable": "true"}
    watched.txn(Put(keys.topic_config("t"), values.encode_config(config)))
    assert watched.follow().configs == {keys.topic_config("t")}
    assert image.min_insync_replicas(T1) == 3
    assert image.unclean_election_allowed(T1)
    watched.txn(Delete(keys.topic_config("t")))
    watched.follow()
    assert image.min_insync_replicas(T1) == 2


def test_the_controllers_claim_and_epoch(watched: Watched) -> None:
    session = watched.store.open_session()
    watched.store.txn(
        (),
        (
            Put(keys.CONTROLLER, values.encode_claim(2, 5, 1), session),
            Put(keys.CONTROLLER_EPOCH, b"1"),
        ),
    )
    assert watched.follow().controller
    claimed = watched.image.controller, watched.image.controller_epoch
    assert claimed == (ControllerClaim(2, 5, 1, session, 1), 1)
    watched.store.expire(session)
    watched.txn(Delete(keys.CONTROLLER_EPOCH))
    watched.follow()
    assert (watched.image.controller, watched.image.controller_epoch) == (None, 0)


partitions = st.builds(
    PartitionRegistration,
    st.sampled_from([T1, T2]),
    st.integers(0, 2),
    st.just((1, 2, 3)),
    st.sampled_from([(), (1,), (1, 2)]),
    st.sampled_from([None, 1, 2]),
    elr=st.sampled_from([(), (3,)]),
    adding=st.sampled_from([(), (3,)]),
)
operations = st.one_of(
    st.builds(put_partition, partitions),
    st.builds(lambda key: Delete(keys.partition(*key)), st.tuples(st.just(T1), st.integers(0, 2))),
    st.builds(put_topic, st.sampled_from(["t", "u"]), st.just(T1), st.integers(0, 3)).filter(
        lambda op: op.key.endswith("t")
    ),
    st.builds(put_topic, st.just("u"), st.just(T2), st.integers(0, 3)),
    st.builds(lambda name: Delete(keys.topic_name(name)), st.sampled_from(["t", "u"])),
    st.builds(put_state, st.integers(1, 2), st.integers(1, 9), st.booleans()),
    st.builds(lambda name: Put(keys.topic_config(name), b'{"a":"b"}'), st.just("t")),
)


@given(st.lists(operations, max_size=30), st.data())
def test_following_and_loading_give_the_same_image(
    ops: list[Operation], data: st.DataObject
) -> None:
    watched, jumping = Watched(), ClusterImage()
    for op in ops:
        watched.txn(op)
        watched.follow()
        if data.draw(st.booleans()):
            jumping.load(watched.store.range(""))
    jumping.load(watched.store.range(""))
    fresh = ClusterImage()
    fresh.load(watched.store.range(""))
    for other in (jumping, fresh):
        assert other.freeze() == watched.image.freeze()
        assert other.leaderless == watched.image.leaderless
        assert other.reassigning == watched.image.reassigning
        assert other.mod_revs == watched.image.mod_revs
        for index in ("in_isr", "in_elr"):
            mine, theirs = getattr(watched.image, index), getattr(other, index)
            assert {b: ks for b, ks in mine.items() if ks} == {
                b: ks for b, ks in theirs.items() if ks
            }
