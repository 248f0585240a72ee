"""Virtual time, the network and the store of the simulator, tested separately."""

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import OutcomeUnknown, Put, TxnResult
from tidelog.core.node import events as on
from tidelog.lab.sim.machine.network import LinkConditions, Network
from tidelog.lab.sim.machine.store import SimStore, StoreClient, StoreFaults
from tidelog.lab.sim.world import World


def test_events_run_by_time_then_in_order_of_planning() -> None:
    world = World(1)
    seen: list[str] = []
    world.at(5, seen.append, "c")
    world.at(3, seen.append, "a")
    world.at(3, seen.append, "b")
    world.run_until(4)
    assert (seen, world.now_ms) == (["a", "b"], 4)
    world.run_until(9)
    assert (seen, world.now_ms, world.events) == (["a", "b", "c"], 9, 3)


def test_event_planned_in_the_past_runs_now() -> None:
    world = World(1)
    world.run_until(10)
    seen: list[int] = []
    world.at(3, lambda: seen.append(world.now_ms))
    world.run_until(10)
    assert seen == [10]


def deliver(conditions: LinkConditions, count: int = 400) -> tuple[list[int], dict[str, int]]:
    world = World(1)
    network = Network(world, conditions)
    seen: list[int] = []
    for number in range(count):
        network.send(1, 2, seen.append, number)
        world.run_until(world.now_ms + 1)
    world.run_until(100_000)
    return seen, world.faults


def test_a_calm_network_delivers_everything_once_in_time() -> None:
    seen, faults = deliver(LinkConditions(1, 1))
    assert seen == list(range(400))
    assert not faults


def test_bad_network_drops_duplicates_delays_and_reorders() -> None:
    seen, faults = deliver(LinkConditions(1, 9, drop=0.1, duplicate=0.1, late=0.1))
    assert 300 < len(set(seen)) < 400
    assert any(seen.count(number) == 2 for number in seen)
    assert max(seen.count(number) for number in seen) == 2
    assert seen != sorted(seen)
    assert all(
        faults[f"message {kind}"] > 10 for kind in ("dropped", "duplicated", "delayed", "reordered")
    )


def test_a_cut_holds_in_one_direction_and_ends() -> None:
    world = World(1)
    network = Network(world, LinkConditions(1, 1))
    seen: list[str] = []
    network.cut(1, 2, 50)
    assert not network.send(1, 2, seen.append, "lost")
    assert network.send(2, 1, seen.append, "back")
    world.run_until(60)
    assert network.send(1, 2, seen.append, "again")
    world.run_until(70)
    assert seen == ["back", "again"]


def test_a_clogged_link_loses_nothing() -> None:
    world = World(1)
    network = Network(world, LinkConditions(1, 1))
    seen: list[int] = []
    network.clog(1, 2, 100)
    for number in range(9):
        network.send(1, 2, seen.append, number)
    world.run_until(99)
    assert not seen
    world.run_until(200)
    assert sorted(seen) == list(range(9))
    assert seen != sorted(seen)


class Broker:
    """A client of the store that records every event it receives."""

    def __init__(self, store: SimStore, broker: int) -> None:
        self.heard: list[tuple[type, tuple[object, ...]]] = []
        self.client = StoreClient(broker, self._hear, lambda: store.world.now_ms)
        store.join(self.client)

    def _hear(self, kind: type, *fields: object) -> None:
        self.heard.append((kind, fields))

    def kinds(self) -> list[str]:
        return [kind.__name__ for kind, _ in self.heard]


def make_store(faults: StoreFaults | None = None) -> tuple[World, SimStore]:
    world = World(1)
    store = SimStore(world, Network(world, LinkConditions(1, 1)), faults or StoreFaults())
    store.on_change = lambda: None
    return world, store


def put(tag: int, key: str, session: int = 0) -> StoreTransaction:
    return StoreTransaction(tag, (), (Put(key, b"v", session),))


def test_transaction_is_answered_and_watchers_are_notified() -> None:
    world, store = make_store()
    writer, watcher = Broker(store, 1), Broker(store, 2)
    store.watch(watcher.client, 0)
    store.transact(writer.client, put(7, "k"))
    world.run_until(20)
    assert writer.heard == [(on.TransactionAnswered, (7, TxnResult(True, 1)))]
    assert watcher.kinds() == ["StoreChanged"]


def test_an_unknown_outcome_is_applied_now_later_or_never() -> None:
    applied = set()
    for seed in range(30):
        world = World(seed)
        store = SimStore(world, Network(world, LinkConditions(1, 1)), StoreFaults(unknown=1.0))
        store.on_change = lambda: None
        writer = Broker(store, 1)
        store.transact(writer.client, put(7, "k"))
        world.run_until(500)
        assert writer.heard == [(on.TransactionAnswered, (7, OutcomeUnknown()))]
        early = store.mvcc.revision
        world.run_until(5_000)
        applied.add((early, store.mvcc.revision))
    assert applied == {(0, 0), (1, 1), (0, 1)}


def test_session_lasts_while_renewed_and_ends_with_its_holder() -> None:
    world, store = make_store()
    holder = Broker(store, 1)
    store.open_session(holder.client, 900)
    world.run_until(5_000)
    session = holder.client.session
    assert session is not None
    assert store.mvcc.alive(session)
    assert holder.kinds().count("SessionRenewed") >= 10
    holder.client.dead = True
    world.run_until(5_000 + 1_300)
    assert not store.mvcc.alive(session)


def test_paused_holder_learns_of_its_lost_session_when_it_resumes() -> None:
    world, store = make_store()
    holder = Broker(store, 1)
    store.open_session(holder.client, 900)
    world.run_until(100)
    holder.client.frozen = True
    world.run_until(3_000)
    holder.client.frozen = False
    world.run_until(4_000)
    assert holder.kinds()[-1] == "SessionLost"


def test_watch_from_a_compacted_revision_is_lost() -> None:
    world, store = make_store()
    writer, watcher = Broker(store, 1), Broker(store, 2)
    for number in range(3):
        store.transact(writer.client, put(number, f"k{number}"))
    world.run_until(20)
    store.compact(1)
    store.watch(watcher.client, 0)
    world.run_until(40)
    assert watcher.kinds() == ["WatchLost"]
