"""Build the parts of a broker, each from the parts that it uses.

The order is the order of the layers: a part is built from parts above it in this file.
"""

from collections.abc import Sequence

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import FeatureRange
from tidelog.core.node.activation import Activation
from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.coordinators import Coordinators
from tidelog.core.node.following.leader_fetcher import ReplicaFetchers
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import FollowedPartitions
from tidelog.core.node.hosting.loss_recorder import LossRecorder
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.hosting.replication_quota import ReplicationQuotas
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.node.membership.image_applier import ImageApplier
from tidelog.core.node.membership.isr_proposals import IsrProposals
from tidelog.core.node.membership.log_reporter import LogReporter
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.membership.store_follower import StoreFollower
from tidelog.core.node.serving.fetch import FetchService
from tidelog.core.node.serving.fetch_sessions import FetchSessions
from tidelog.core.node.serving.offsets import OffsetService
from tidelog.core.node.serving.produce import ProduceService
from tidelog.core.node.serving.producer_ids import ProducerIds
from tidelog.core.node.serving.txn_markers import TxnMarkerService
from tidelog.core.node.serving.txn_verification import TxnVerification
from tidelog.core.node.turn import Turn
from tidelog.core.node.upkeep.cleaning import Cleaning
from tidelog.core.node.upkeep.clock_watch import ClockWatch
from tidelog.core.node.upkeep.duties import Duties
from tidelog.core.node.upkeep.flushing import Flushing
from tidelog.core.node.upkeep.moves import Moves
from tidelog.core.node.upkeep.repairs import Repairs
from tidelog.core.node.upkeep.scrubber import Scrubber
from tidelog.core.quotas.client_quotas import ClientQuotas, Windows
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log_directories import LogDisk, open_directories
from tidelog.core.storage.log_directory import Progress
from tidelog.core.wall_clock import ClockReading


class Parts:
    """The parts of one broker, built once at startup."""

    def __init__(
        self,
        config: NodeConfig,
        disk: Disk | Sequence[LogDisk],
        incarnation: int,
        now_ms: int,
        policy: TruncationPolicy,
        progress: Progress | None,
        clock: ClockReading | None,
        supported: tuple[FeatureRange, ...],
    ) -> None:
        """Recover the logs, then build all parts. `incarnation` differs at each start."""
        self.turn = turn = Turn(now_ms)
        self.image = image = ClusterImage()
        self.directory = directory = open_directories(disk, now_ms, lambda _: config.log, progress)
        self.clock = ClockWatch(config=config, turn=turn, directory=directory, reading=clock)
        self.calls = calls = Calls(turn)

        followed = FollowedPartitions()
        boot = "" if clock is None else clock.boot_id
        losses = LossRecorder(turn, image, directory, config.broker_id, boot)
        self.replicas = replicas = Replicas(turn, directory, followed, losses)
        slots = config.max_incremental_fetch_session_cache_slots
        sessions = FetchSessions(slots=slots, seed=incarnation)
        confirmed_ms, lease_ms = sessions.confirmed_ms, config.broker_session_timeout_ms // 3
        self.gate = gate = Gate(turn, replicas, image, config.broker_id, confirmed_ms, lease_ms)
        windows = Windows(
            config.quota_window_num,
            config.quota_window_size_seconds,
            config.controller_quota_window_num,
            config.controller_quota_window_size_seconds,
        )
        self.client_quotas = ClientQuotas(image, windows)
        quotas = ReplicationQuotas(config=config, image=image)
        fetchers = ReplicaFetchers(config, turn, calls, replicas, followed, quotas.follower)
        self.fetchers = fetchers

        self.flushing = flushing = Flushing(turn=turn, replicas=replicas, gate=gate)
        self.duties = duties = Duties(config=config, turn=turn, replicas=replicas, gate=gate)
        self.cleaning = cleaning = Cleaning(config, turn, image, replicas)
        self.scrubber = Scrubber(config=config, turn=turn, replicas=replicas)
        self.repairs = Repairs(turn=turn, replicas=replicas, cleaning=cleaning)
        self.moves = Moves(turn, replicas, cleaning, flushing, duties, quotas.moves)

        self.controller = controller = ControllerHost(config, turn, image, calls, supported, losses)
        self.proposals = IsrProposals(config, turn, controller, replicas)
        self.reporter = reporter = LogReporter(
            config=config, turn=turn, image=image, controller=controller, replicas=replicas
        )
        self.applier = applier = ImageApplier(
            config=config,
            turn=turn,
            gate=gate,
            replicas=replicas,
            fetchers=fetchers,
            reporter=reporter,
            policy=policy,
        )
        self.registration = registration = Registration(
            config=config,
            turn=turn,
            image=image,
            controller=controller,
            reporter=reporter,
            applier=applier,
            incarnation=str(incarnation),
            previous_epoch=directory.broker_epoch,
            supported=supported,
        )
        self.store = StoreFollower(turn, image, directory, supported)

        self._build_services(config, quotas, sessions)
        self.activation = Activation(
            turn=turn,
            gate=gate,
            replicas=replicas,
            registration=registration,
            applier=applier,
            flushing=flushing,
        )

    def _build_services(
        self, config: NodeConfig, quotas: ReplicationQuotas, sessions: FetchSessions
    ) -> None:
        """Build the parts that serve requests of clients and of coordinators."""
        turn, image, calls = self.turn, self.image, self.calls
        replicas, gate = self.replicas, self.gate
        self.fetches = fetches = FetchService(
            config=config,
            turn=turn,
            image=image,
            replicas=replicas,
            gate=gate,
            sessions=sessions,
            quota=quotas.leader,
        )
        writing = (turn, replicas, gate, fetches.wake_resting)
        # Coordinators use these two, and are used by them for partitions of their own topics.
        self.verification = TxnVerification(
            *(config, turn, image, calls, replicas),
            ask_local=lambda *asked: self.coordinators.add_partitions_to_txn(*asked),
        )
        self.markers = TxnMarkerService(
            config,
            *writing,
            complete_offsets=lambda *marked: self.coordinators.complete_transaction(*marked),
        )
        self.produces = ProduceService(*writing, self.verification)
        self.offsets = OffsetService(turn=turn, replicas=replicas, gate=gate)
        self.producer_ids = ProducerIds(
            config=config,
            turn=turn,
            controller=self.controller,
            registration=self.registration,
            gate=gate,
        )
        self.coordinators = Coordinators(
            CoordinatorHost(
                *(config, turn, image, replicas, gate, fetches.wake_resting, calls),
                allocate_producer_id=self.producer_ids.allocate,
                write_markers=self.markers.write,
                verify_transaction=self.verification.verify,
            )
        )
