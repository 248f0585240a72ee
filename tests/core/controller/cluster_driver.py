"""A small cluster for tests: controllers over one store in memory.

It carries out transactions and delivers watch events until nothing is pending, unless a test
holds something back. Time advances only by `tick`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.broker_liveness import registration_transaction
from tidelog.core.controller.controller import Controller, ControllerSettings
from tidelog.core.controller.events import IsrMember, IsrProposal
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import SUPPORTED, FeatureRange
from tidelog.core.controller.metadata.metadata_store import Compacted, TxnAnswer, TxnResult
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.controller.metadata.registrations import (
    LeaderRecovery,
    PartitionKey,
    PartitionRegistration,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import replace

TOPIC = b"\x07" * 16
KEY = PartitionKey(TOPIC, 0)


@dataclass(eq=False)
class Host:
    """One broker: its session, image and controller, and the effects it has seen."""

    broker: int
    session: int
    epoch: int
    controller: Controller
    answers: dict[int, do.Response] = field(default_factory=dict)
    seen: list[do.ControllerEffect] = field(default_factory=list)
    queue: deque[do.StoreTransaction] = field(default_factory=deque)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def is_active(self) -> bool:
        return self.controller.is_active

    def token(self) -> int | None:
        return self.controller.candidacy.token


class Cluster:
    """`fault` may replace the response to a transaction; called before and after it."""

    def __init__(self, *brokers: int, settings: ControllerSettings | None = None) -> None:
        self.store = Mvcc()
        self.hosts: dict[int, Host] = {}
        self.settings = settings or ControllerSettings(rebalance_interval_ms=10**9)
        self.now_ms = 1_000_000
        self.fault: Callable[[str, do.StoreTransaction], TxnAnswer | None] | None = None
        self.deaf: set[int] = set()
        self.silent_about_logs: set[int] = set()
        self._reported: set[tuple[int, int, int, PartitionKey, int]] = set()
        self.requests = 0
        for broker in brokers:
            self.start(broker)
        for broker in brokers:
            self.heartbeat(broker)

    def start(
        self,
        broker: int,
        previous_epoch: int = -1,
        rack: str | None = None,
        min_insync_replicas: int = 1,
        supported: tuple[FeatureRange, ...] = SUPPORTED,
    ) -> Host:
        """Register a broker in the store; it is fenced until its first heartbeat."""
        session = self.store.open_session()
        incarnation = f"{broker}/{session}"
        result = self.store.txn(
            *registration_transaction(
                broker,
                session,
                incarnation,
                (),
                rack,
                previous_epoch,
                min_insync_replicas,
                supported,
            )
        )
        assert isinstance(result, TxnResult)
        assert result.ok
        image = ClusterImage()
        image.load(self.store.range(""))
        settings = replace(self.settings, supported=supported)
        host = Host(broker, session, result.rev, Controller(broker, image, settings))
        self.hosts[broker] = host
        self.deaf.discard(broker)
        self.step(broker, on.Ticked(self.now_ms), on.SessionOpened(session, result.rev))
        self.run()
        return host

    def stop(self, broker: int) -> None:
        """End the process; its session exists until it expires."""
        del self.hosts[broker]

    def expire(self, broker: int) -> None:
        host = self.hosts[broker]
        self.store.expire(host.session)
        self.step(broker, on.SessionLost())
        self.run()

    def crash(self, broker: int) -> None:
        session = self.hosts[broker].session
        self.stop(broker)
        self.store.expire(session)
        self.run()

    def restart(self, broker: int, clean: bool = False) -> Host:
        epoch = self.hosts[broker].epoch
        self.crash(broker)
        host = self.start(broker, epoch if clean else -1)
        self.heartbeat(broker)
        return host

    def step(self, broker: int, *events: on.ControllerEvent) -> list[do.ControllerEffect]:
        host = self.hosts[broker]
        out: list[do.ControllerEffect] = []
        for event in events:
            out += host.controller.step(event)
        return self._carry_out_of(host, out)

    def _carry_out_of(
        self, host: Host, out: list[do.ControllerEffect]
    ) -> list[do.ControllerEffect]:
        for effect in out:
            host.seen.append(effect)
            if isinstance(effect, do.StoreTransaction):
                host.queue.append(effect)
            elif isinstance(effect, do.Answer):
                assert effect.request not in host.answers
                host.answers[effect.request] = effect.response
        return out

    def carry_out(self, broker: int) -> None:
        """Carry out the oldest transaction of a broker."""
        transaction = self.hosts[broker].queue.popleft()
        answer = self.fault("before", transaction) if self.fault else None
        if answer is None:
            answer = self.store.txn(transaction.guards, transaction.ops)
            late = self.fault("after", transaction) if self.fault else None
            answer = answer if late is None else late
        self.step(broker, on.TransactionAnswered(transaction.tag, answer))

    def watch(self, broker: int) -> bool:
        host = self.hosts[broker]
        batches = self.store.watch("", host.image.revision)
        assert not isinstance(batches, Compacted)
        if batches:
            self.step(broker, on.StoreChanged(host.image.apply(*batches)))
        return bool(batches)

    def run(self) -> None:
        """Run until nothing is in flight; the watch of a deaf broker is held back."""
        moved = True
        while moved:
            moved = False
            for broker in list(self.hosts):
                while self.hosts[broker].queue:
                    self.carry_out(broker)
                    moved = True
                if (controller := self.hosts[broker].controller).unfinished:
                    self._carry_out_of(self.hosts[broker], controller.continue_upkeep())
                    moved = True
                if broker not in self.deaf:
                    moved |= self.watch(broker)
            moved = moved or self._report_logs()

    def _report_logs(self) -> bool:
        """Report equal logs of leaderless partitions from all brokers to each controller."""
        office = [host for host in self.hosts.values() if host.controller.is_active]
        for host in self.hosts.values():
            image = host.image
            if not office or host.broker in self.deaf | self.silent_about_logs:
                continue
            logs = {}
            for key in image.leaderless:
                known = image.partitions[key]
                report = (office[0].epoch, host.broker, host.epoch, key, known.leader_epoch)
                if host.broker in known.replicas and report not in self._reported:
                    self._reported.add(report)
                    logs[key] = on.LogState(0, 0, as_of=known.leader_epoch)
            if logs:
                event = on.LogReportsReceived(self.number(), host.broker, host.epoch, logs=logs)
                self.step(office[0].broker, event)
                return True
        return False

    def tick(self, by_ms: int, *silent: int, heartbeats: bool = True) -> None:
        """Let time pass in small steps; all brokers but the silent ones send heartbeats."""
        end = self.now_ms + by_ms
        while self.now_ms < end:
            self.now_ms = min(self.now_ms + 500, end)
            for broker in sorted(self.hosts):
                self.step(broker, on.Ticked(self.now_ms))
            if heartbeats and self.now_ms % 2000 < 500:
                for broker in sorted(set(self.hosts) - set(silent)):
                    self.heartbeat(broker)
            self.run()

    @property
    def leader(self) -> Host:
        """The broker that is the controller."""
        (host,) = [host for host in self.hosts.values() if host.controller.is_active]
        return host

    def request(self, event: on.Request) -> do.Response:
        """Send a request to the controller, and return the response."""
        host = self.leader
        self.step(host.broker, event)
        self.run()
        return host.answers[event.request]

    def number(self) -> int:
        self.requests += 1
        return self.requests

    def heartbeat(self, broker: int, **wishes: bool) -> do.Response:
        host = self.hosts[broker]
        if not any(other.controller.is_active for other in self.hosts.values()):
            return do.HeartbeatAnswer(ErrorCode.NOT_CONTROLLER)
        beat = on.HeartbeatReceived(
            self.number(), broker, host.epoch, host.image.revision, self.now_ms, **wishes
        )
        return self.request(beat)

    def create(self, *assignment: tuple[int, ...], name: str = "t", **configs: str) -> None:
        event = on.CreateTopicReceived(
            self.number(),
            name,
            TOPIC,
            0,
            0,
            {key.replace("_", "."): value for key, value in configs.items()},
            assignment,
        )
        answer = self.request(event)
        assert isinstance(answer, do.TopicAnswer)
        assert answer.error is ErrorCode.NONE

    def partition(self, key: PartitionKey = KEY) -> PartitionRegistration:
        image = ClusterImage()
        image.load(self.store.range(""))
        return image.partitions[key]

    def proposal(
        self, *isr: int, recovery: LeaderRecovery = LeaderRecovery.RECOVERED
    ) -> on.AlterPartitionReceived:
        """Return the request of the partition's leader for this ISR."""
        now = self.partition()
        assert now.leader is not None
        members = tuple(IsrMember(b, self.hosts[b].epoch if b in self.hosts else -1) for b in isr)
        wanted = IsrProposal(KEY, now.leader_epoch, now.partition_epoch, members, recovery)
        epoch = self.hosts[now.leader].epoch
        return on.AlterPartitionReceived(self.number(), now.leader, epoch, (wanted,))

    def alter(self, *isr: int) -> do.AlterPartitionResult:
        answer = self.request(self.proposal(*isr))
        assert isinstance(answer, do.AlterPartitionAnswer)
        assert answer.error is ErrorCode.NONE
        return answer.results[KEY]
