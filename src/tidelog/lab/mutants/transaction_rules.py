"""Mutants that each remove one rule of transactions.

The checker's model of transactions (lab/modelcheck/transactions) must find each of the first list:
rules of the coordinator, of markers and of partition leaders. Offsets in transactions are not in
that model: the simulator and a story find their mutants.
"""

from tidelog.lab.modelcheck.transactions.model import TransactionBounds
from tidelog.lab.mutants.mutant import Change, Mutant, mutant


def _bounds(**bounds: int) -> TransactionBounds:
    """Return bounds that are 0 unless given."""
    none = {"late_requests": 0, "late_markers": 0, "failures": 0, "time_outs": 0}
    return TransactionBounds(**{**none, **bounds})


VERSION_1 = _bounds(client_version=1, cluster_version=1, late_requests=1)
VERSION_1_TWICE = _bounds(client_version=1, cluster_version=1, transactions=2)
VERSION_1_OLD_COORDINATOR = _bounds(
    client_version=1, cluster_version=1, transactions=2, failures=1, late_markers=1
)
PLAIN = _bounds()
LATE_REQUEST_TWICE = _bounds(transactions=2, late_requests=1)
LATE_MARKER = _bounds(late_markers=1)
LATE_MARKER_TWICE = _bounds(transactions=2, late_markers=1)
FAILURE = _bounds(failures=1)
FAILURE_AND_TIME_OUT = _bounds(failures=1, time_outs=1)
TIME_OUT = _bounds(time_outs=1)
ELECTION = _bounds(elections=1)
LAST_EPOCHS = _bounds(transactions=2, epochs_left=1)

_TRANSACTION = "tidelog.core.transactions.transaction"
_SHARD = "tidelog.core.transactions.shard"
_PRODUCERS = "tidelog.core.lineage.producer_state"
_SERVING = "tidelog.core.node.serving"

CHECKED: tuple[Mutant, ...] = (
    # -- the coordinator's states
    mutant(
        "late-end-txn-ends-the-next-transaction",
        "an EndTxn of the epoch before is a retry, and never ends the transaction after it",
        "KIP-890",
        Change(
            _TRANSACTION,
            "        valid = current\n    elif",
            "        valid = current or retried\n    elif",
        ),
        bounds=LATE_REQUEST_TWICE,
    ),
    mutant(
        "fenced-producer-ends-a-transaction",
        "only the current producer of a transactional id adds partitions and ends transactions",
        "own: the zombie commits what its successor has written so far",
        Change(
            _TRANSACTION,
            "    if producer.epoch != known.epoch:\n",
            "    if producer.epoch > known.epoch:\n",
        ),
        bounds=VERSION_1,
    ),
    mutant(
        "epoch-stays-at-the-end",
        "with version 2 each end of a transaction raises the epoch",
        "KIP-890",
        Change(
            _TRANSACTION,
            "raises = fence or version >= EPOCH_BUMPS",
            "raises = fence",
        ),
        bounds=PLAIN,
    ),
    mutant(
        "epoch-stays-at-init",
        "InitProducerId raises the epoch, so that earlier producers are fenced",
        "own: the zombie's record is committed with its successor's transaction",
        Change(
            _TRANSACTION,
            "        epoch, last_epoch = known.epoch + 1, NO_EPOCH\n",
            "        epoch, last_epoch = max(known.epoch, 0), NO_EPOCH\n",
        ),
        bounds=PLAIN,
    ),
    mutant(
        "time-out-does-not-fence",
        "a transaction that the coordinator aborts itself raises the epoch",
        "own: the producer continues, and commits half of its transaction",
        Change(_SHARD, "self._cluster_version(), fence=True)", "0, fence=False)"),
        bounds=TIME_OUT,
    ),
    mutant(
        "aborted-transaction-acknowledged-as-committed",
        "a retried EndTxn succeeds only if the outcome is the one it asks for",
        "own: the transaction timed out before",
        Change(
            _TRANSACTION,
            "        return ALREADY_ENDED if _is_commit(state) is committed else",
            "        return ALREADY_ENDED if known.epoch >= 0 else",
        ),
        bounds=TIME_OUT,
    ),
    mutant(
        "partitions-added-while-markers-are-written",
        "no partition is added while the outcome of the last transaction is being written",
        "own: the partition gets no marker",
        Change(
            _SHARD,
            "        if entry.pending or known is None:\n            respond(",
            "        if known is None:\n            respond(",
        ),
        Change(
            _SHARD,
            "            error = ErrorCode.CONCURRENT_TRANSACTIONS\n        added =",
            "            pass\n        added =",
        ),
        bounds=VERSION_1_TWICE,
    ),
    mutant(
        "init-while-markers-are-written",
        "InitProducerId waits until the last transaction is complete",
        "own: the successor would begin while the old transaction is open",
        Change(
            _SHARD,
            "        if entry.pending or known is None:\n            fail(",
            "        if known is None:\n            fail(",
        ),
        Change(
            _TRANSACTION,
            "    if known.state.is_prepared:\n        return ErrorCode.CONCURRENT",
            "    if known.epoch < NO_EPOCH:\n        return ErrorCode.CONCURRENT",
        ),
        bounds=FAILURE,
    ),
    mutant(
        "init-leaves-a-transaction-open",
        "InitProducerId first aborts the transaction that an earlier producer left open",
        "own: its partitions would never get a marker",
        Change(
            _SHARD,
            "        elif known.state is TransactionState.ONGOING:\n            self._fence(",
            "        elif known.epoch < -1:\n            self._fence(",
        ),
        bounds=PLAIN,
    ),
    mutant(
        "last-epoch-is-given-to-a-client",
        "a producer gets another id while one epoch is left to fence it",
        "KIP-360",
        Change(
            _TRANSACTION,
            "        return self.epoch >= LAST_CLIENT_EPOCH\n",
            "        return self.epoch >= EPOCH_MAX\n",
        ),
        bounds=LAST_EPOCHS,
    ),
    # -- the coordinator's log
    mutant(
        "answer-before-the-outcome-is-written",
        "EndTxn is acknowledged when the outcome is committed in the coordinator's log",
        "own: the successor of the coordinator aborts the transaction",
        Change(
            _SHARD,
            "        self._prepare(name, entry, outcome, ended, version)\n",
            "        following = on.EndTransactionResponse(\n"
            "            ErrorCode.NONE, known.producer_id, known.epoch + 1\n"
            "        )\n"
            "        self._outbox.answer(requester, following)\n"
            "        self._prepare(name, entry, outcome, lambda *_: None, version)\n",
        ),
        bounds=FAILURE_AND_TIME_OUT,
    ),
    mutant(
        "markers-before-the-outcome-is-written",
        "markers are sent when the outcome is committed in the coordinator's log",
        "own: the successor of the coordinator decides otherwise",
        Change(
            _SHARD,
            "            self._change(name, entry, following, changed)\n\n        if version",
            "            self._change(name, entry, following, changed)\n"
            "            self._send_markers(name, entry, following)\n\n        if version",
        ),
        bounds=FAILURE_AND_TIME_OUT,
    ),
    mutant(
        "decided-transaction-forgotten-at-load",
        "a new coordinator sends the markers of each transaction whose outcome is decided",
        "own: the last stable offset would stay for ever",
        Change(
            _SHARD,
            "            if known.state.is_prepared:\n                self._send",
            "            if known.epoch < -1:\n                self._send",
        ),
        bounds=FAILURE,
    ),
    mutant(
        "time-out-forgotten-at-load",
        "a new coordinator sets the time-outs of open transactions",
        "own: the last stable offset would stay for ever",
        Change(
            _SHARD,
            "                self._abort_at(transactional_id, self._now_ms + left_ms)\n",
            "                pass\n",
        ),
        bounds=FAILURE,
    ),
    # -- markers
    mutant(
        "complete-after-the-first-marker",
        "a transaction is complete when all its partitions have their marker",
        "own: a coordinator that fails then leaves a partition without one",
        Change(
            _SHARD,
            "        entry.left -= done\n        if not entry.left:\n",
            "        entry.left.clear()\n        if not entry.left:\n",
        ),
        bounds=FAILURE,
    ),
    mutant(
        "refused-marker-counts",
        "a marker is sent again until its partition has it",
        "own: an election loses the marker that was not committed",
        Change(
            "tidelog.core.node.coordinating.marker_sender",
            "if results.get(name, missing) in _DONE}",
            "if name in results or missing in _DONE}",
        ),
        bounds=ELECTION,
    ),
    mutant(
        "marker-of-an-older-epoch",
        "a partition refuses a marker of an epoch before that of the producer's records",
        "own: a late marker would end the successor's transaction",
        Change(
            _PRODUCERS,
            "if batch.producer_epoch < entry.epoch or (\n",
            "if batch.producer_epoch < 0 or (\n",
        ),
        bounds=LATE_MARKER,
    ),
    mutant(
        "marker-of-the-last-transaction",
        "with version 2 a marker of the producer's own epoch is late",
        "KIP-890, KAFKA-19446",
        Change(
            _PRODUCERS,
            "            transaction_version >= STRICT_MARKERS\n",
            "            transaction_version > STRICT_MARKERS\n",
        ),
        bounds=LATE_MARKER_TWICE,
    ),
    mutant(
        "marker-of-an-older-coordinator",
        "a partition refuses the markers of a coordinator that was replaced",
        "own: with version 1 a late marker has the epoch of the next transaction",
        Change(
            _PRODUCERS,
            "if marker.coordinator_epoch < entry.coordinator_epoch:",
            "if marker.coordinator_epoch < 0:",
        ),
        bounds=VERSION_1_OLD_COORDINATOR,
    ),
    # -- partition leaders
    mutant(
        "verification-left-out",
        "the leader asks the coordinator before a record begins a transaction",
        "KIP-890: hanging transactions",
        Change(
            f"{_SERVING}.txn_verification",
            "return producer.add or self._config.transaction_partition_verification_enable",
            "return producer.add",
        ),
        bounds=VERSION_1,
    ),
    mutant(
        "verification-outlives-the-marker",
        "a marker ends the verification of records that wait for the coordinator",
        "KIP-890: hanging transactions",
        Change(
            _PRODUCERS,
            "        self.verifications.pop(batch.producer_id, None)\n        entry = ",
            "        entry = ",
        ),
        bounds=VERSION_1,
    ),
    mutant(
        "record-of-an-older-epoch",
        "a record of an older epoch does not join the open transaction",
        "own: a late record of an aborted transaction is committed with the next one",
        Change(
            _PRODUCERS,
            "            elif batch.producer_epoch < entry.epoch:\n",
            "            elif batch.producer_epoch < -1:\n",
        ),
        Change(
            _PRODUCERS,
            "        if entry is not None and producer_epoch < entry.epoch:\n",
            "        if entry is not None and producer_epoch < -1:\n",
        ),
        Change(
            _PRODUCERS,
            "            and self.producers[producer_id].epoch == producer_epoch\n",
            "            and self.producers[producer_id].epoch >= producer_epoch\n",
        ),
        bounds=LATE_REQUEST_TWICE,
    ),
    mutant(
        "last-stable-offset-is-the-high-watermark",
        "read-committed readers stop at the first open transaction",
        "own: readers see records that are aborted later",
        Change(
            "tidelog.core.replication.replica",
            "if producers is None or not (producers.open_transactions or producers.ended):",
            "if self.high_watermark >= 0 or producers is None:",
        ),
        bounds=PLAIN,
    ),
    mutant(
        "aborted-transaction-not-listed",
        "the leader lists aborted transactions, and readers skip their records",
        "own: readers see aborted records",
        Change(
            _PRODUCERS,
            "        if not marker.is_abort:\n            return None\n",
            "        if not marker.is_abort or first_offset >= 0:\n            return None\n",
        ),
        bounds=PLAIN,
    ),
)

_BY_SIMULATOR: tuple[Mutant, ...] = (
    mutant(
        "offsets-of-an-aborted-transaction",
        "the offsets of a transaction count if it is committed",
        "own: a group continues after records that nobody has processed",
        Change(
            "tidelog.core.groups.offsets",
            "            if committed and value is not None:\n",
            "            if value is not None:\n",
        ),
        first_seed=11,
    ),
    mutant(
        "offsets-before-the-marker",
        "the offsets of a transaction count when its marker is committed",
        "own: the transaction may still be aborted",
        Change(
            "tidelog.core.groups.committing",
            "self.put_in_transaction(group, request.producer_id, partition, value)",
            "group.offsets.put(*partition, value)",
        ),
        first_seed=11,
    ),
    mutant(
        "offsets-without-verification",
        "the group coordinator asks the transaction coordinator before it writes offsets",
        "KIP-890: offsets that belong to no transaction get no marker, and hang",
        Change(
            "tidelog.core.node.coordinating.group_coordinator",
            "        self._verify_transaction(\n",
            "        (lambda *asked: asked[-1](ErrorCode.NONE))(\n",
        ),
        Change(
            _PRODUCERS,
            "            and not verified\n",
            "            and batch.producer_epoch < 0\n",
        ),
        first_seed=11,
    ),
)

_BY_STORIES: tuple[Mutant, ...] = (
    mutant(
        "offsets-of-an-older-generation",
        "a member commits offsets in a transaction only in the generation of its group",
        "KIP-447: a consumer that lost its partitions in a rebalance commits after its successor",
        Change(
            "tidelog.core.groups.committing",
            '    """Check whether a commit in a transaction is allowed (KIP-447).\n',
            "    return ErrorCode.NONE\n"
            '    """Check whether a commit in a transaction is allowed (KIP-447).\n',
        ),
        only_stories=True,
    ),
)

RULES: tuple[Mutant, ...] = (*CHECKED, *_BY_SIMULATOR, *_BY_STORIES)
