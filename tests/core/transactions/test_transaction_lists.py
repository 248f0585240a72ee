"""ListTransactions: which transactional ids pass the filters."""

from txn_talk import EVENTS, FIRST_PRODUCER_ID, Talk

from tidelog.core.transactions.messages import InitTransactionalId, ListTransactions
from tidelog.core.transactions.transaction import TransactionState


def talk_with_three() -> Talk:
    talk = Talk()
    talk.marks = False
    talk.producer("idle")
    talk.add(talk.producer("open"), EVENTS, name="open")
    talk.pass_ms(5_000)
    late = talk.producer("late")
    talk.add(late, name="late")
    talk.end(late, name="late")
    talk.pass_ms(1_000)
    return talk


def names(talk: Talk, **filters: object) -> list[str]:
    request = ListTransactions(**filters)  # type: ignore[arg-type]
    return [name for name, _, _ in talk.listed(request)]


def test_every_transactional_id_is_listed_with_its_state() -> None:
    assert talk_with_three().listed() == [
        ("idle", FIRST_PRODUCER_ID, "Empty"),
        ("open", FIRST_PRODUCER_ID + 1, "Ongoing"),
        ("late", FIRST_PRODUCER_ID + 2, "PrepareCommit"),
    ]


def test_filters_are_combined() -> None:
    talk = talk_with_three()
    ongoing = frozenset({TransactionState.ONGOING})
    assert names(talk, states=ongoing) == ["open"]
    assert names(talk, states=frozenset(), unknown_states=True) == []
    assert names(talk, producer_ids=frozenset({FIRST_PRODUCER_ID, 5})) == ["idle"]
    assert names(talk, states=ongoing, producer_ids=frozenset({FIRST_PRODUCER_ID})) == []
    assert names(talk, matches=lambda name: "e" in name) == ["idle", "open", "late"]
    assert names(talk, matches=lambda name: name.startswith("l")) == ["late"]


def test_duration_is_that_since_the_first_partition() -> None:
    """An id without a transaction has no start, so it counts as open for ever, as in Kafka."""
    talk = talk_with_three()
    assert names(talk, longer_than_ms=0) == ["idle", "open", "late"]
    assert names(talk, longer_than_ms=1_000) == ["idle", "open"]
    assert names(talk, longer_than_ms=6_000) == ["idle"]


def test_a_transactional_id_that_is_not_committed_yet_is_not_listed() -> None:
    talk = Talk()
    talk.allocates = False
    talk.ask(InitTransactionalId("new", 1_000))
    assert talk.listed() == []
