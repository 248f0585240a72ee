"""Commit a micro-batch whose tasks have written in transactions, on the driver.

1. Check that every transaction is still open. Until here nothing is committed: if one was aborted,
   the micro-batch fails as a whole, and the next run writes it again.
2. Write the decision to the ledger: the transactions that hold the rows.
3. Commit each of them, and wait until readers can see the rows.
4. Write to the ledger that the micro-batch is complete.
5. At intervals, abort the open transactions of attempts that Spark has abandoned.

After a crash between 2 and 4 the tasks of the next run find the decision, and each settles the
transaction that has its rows.

Invariants: a transaction is committed only after the ledger names it, or, without a ledger, after
all tasks are done. Only brokers abort a transaction that the ledger names, after its time-out.
"""

import logging
import time
from collections.abc import Iterable, Sequence

from tidelog.apps.spark.sink.commit_plan import (
    Written,
    ends_after,
    is_complete,
    line_of,
    opened,
    plan_commit,
    unsettled,
)
from tidelog.apps.spark.sink.ledger import Line
from tidelog.apps.spark.sink.process_client import ProcessClient, process_client
from tidelog.apps.spark.sink.sink_errors import RunsElsewhere, SinkError, TransactionLost
from tidelog.apps.spark.sink.task_transaction import Pending, TaskTransaction, is_of_query
from tidelog.apps.spark.sink.write_options import WriteOptions
from tidelog.shell.client.administration.transactions import (
    Filters,
    NoSuchTransaction,
    list_transactions,
)
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.retry import Retry
from tidelog.shell.client.transactions import (
    ENDED,
    TransactionCoordinators,
    committed_in_log,
)

LOG = logging.getLogger("tidelog.spark")
SWEEP_S = 30.0
"""How often abandoned transactions are looked for while a query runs."""
ABORT_S = 10.0
"""How long to try to abort abandoned transactions. Brokers abort them after their time-out."""
_OPEN, _COMMITTING = "Ongoing", "PrepareCommit"


def commit_transactions(options: WriteOptions, written: Sequence[Written]) -> None:
    """Commit a micro-batch. Raises SinkError, ClientError."""
    origin, run = written[0].origin, written[0].run
    query = origin.query
    with process_client(options) as client:
        if is_complete(written):
            _abandon(client, options, query, opened(written))
            _sweep(client, options, query, now=False)  # the run that completed it may have died
            return
        line = line_of(written)
        late = [each for each in unsettled(line, written) if settle(client, query, each)]
        plan = plan_commit(line, written, late, accept_mismatch=options.accept_mismatch)
        _check_open(client, options, query, plan.commit)
        done = [each.delivered for each in written if each.delivered is not None]
        if line is None:
            _commit(client, options, query, plan.commit)
        elif plan.commit or line.pending or options.named or any(each.found for each in done):
            if plan.commit:
                transactions = (*plan.committed, *plan.commit)
                decision = Pending(origin.batch, len(written), transactions)
                decided = line._replace(number=line.number + 1, pending=decision)
                line = _write(client, query, line, decided)
                _commit(client, options, query, plan.commit)
            ends = ends_after(line.ends, done)
            now_ms = int(time.time() * 1000)
            complete = Line(origin.batch, run, ends, line.number + 1, now_ms, options.transactional)
            _complete(client, query, line, complete)
        _abandon(client, options, query, plan.discard)
        _sweep(client, options, query, now=any(each.attempt for each in plan.commit))


def settle(client: ProcessClient, query: str, transaction: TaskTransaction) -> bool:
    """Commit a transaction that the ledger names; return False if it had been aborted.

    Raises ClientError.
    """
    producer = transaction.producer(query)
    try:
        client.coordinators.end(producer, committed=True)
    except BrokerError as error:
        if error.code not in ENDED:
            raise
        return committed_in_log(client.cluster, producer, transaction.key, transaction.offset)
    return True


def settle_other_batch(client: ProcessClient, query: str, pending: Pending) -> int:
    """Commit a batch that was interrupted and is not the one that runs now; return its number.

    That happens to named writes if an interrupted version is not run again. Raises SinkError.
    """
    lost = [each for each in pending.transactions if not settle(client, query, each)]
    if lost:
        raise SinkError(
            f"batch {pending.batch} of {query} was interrupted while it was committed, and"
            f" {len(lost)} of its transactions were aborted since; run that batch again first"
        )
    return pending.batch


def abort_transactions(options: WriteOptions, written: Sequence[Written]) -> None:
    """Abort the transactions of a batch that failed, except those that the ledger names.

    The batch may have failed while it was committed. If the ledger can't be read, the brokers abort
    the transactions after their time-out.
    """
    origin = written[0].origin
    try:
        with process_client(options) as client:
            named: tuple[TaskTransaction, ...] = ()
            if any(each.line for each in written):
                line = client.ledger.find(origin.query)
                if line is None or line.batch >= origin.batch:
                    return
                named = line.pending.transactions if line.pending else ()
            unnamed = [each for each in opened(written) if each not in named]
            _abandon(client, options, origin.query, unnamed)
    except (ClientError, SinkError) as error:
        LOG.warning("the transactions of batch %s stay open for now: %s", origin.batch, error)


def _check_open(
    client: ProcessClient,
    options: WriteOptions,
    query: str,
    transactions: Iterable[TaskTransaction],
) -> None:
    """Raise TransactionLost if one of the transactions is not open any more."""
    for each in transactions:
        producer = each.producer(query)
        try:
            found = client.coordinators.describe(producer.transactional_id)
        except NoSuchTransaction:
            found = None
        now = (found.producer_id, found.producer_epoch, found.state) if found else ()
        if now != (producer.producer_id, producer.epoch, _OPEN):
            invisible = "no row of this batch is visible to committed readers; restart the query"
            raise TransactionLost(producer.transactional_id, options.transaction_ms, invisible)


def _commit(
    client: ProcessClient,
    options: WriteOptions,
    query: str,
    transactions: Sequence[TaskTransaction],
) -> None:
    """Commit transactions, and wait until readers can see them. Raises TransactionLost."""
    lost = [each for each in transactions if not settle(client, query, each)]
    retry = Retry(options.delivery_s)
    for each in transactions:
        name = each.producer(query).transactional_id
        unfinished = SinkError(
            f"transaction {name} is committed, but its markers are not written to all partitions"
            " yet; check with `tidelog cluster health`"
        )
        while client.coordinators.describe(name).state == _COMMITTING:
            retry.wait(unfinished)
    if lost:
        name = lost[0].producer(query).transactional_id
        visible = (
            f"{len(transactions) - len(lost)} of {len(transactions)} tasks of this batch are"
            " visible; restart the query to write the others"
        )
        raise TransactionLost(name, options.transaction_ms, visible)


def _write(client: ProcessClient, query: str, before: Line, line: Line) -> Line:
    """Write the line that follows `before`. Raises RunsElsewhere if it is not the last one."""
    found = client.ledger.find(query)
    if found is None or found.number != before.number or not client.ledger.write(query, line):
        raise RunsElsewhere(query)
    return line


def _complete(client: ProcessClient, query: str, before: Line, line: Line) -> None:
    try:
        _write(client, query, before, line)
    except RunsElsewhere:
        # Another run may have completed what this one has decided.
        found = client.ledger.find(query)
        if found is None or found.batch < line.batch:
            raise


def _abandon(
    client: ProcessClient,
    options: WriteOptions,
    query: str,
    transactions: Iterable[TaskTransaction],
) -> None:
    """Abort transactions that hold no rows of the result."""
    coordinators = TransactionCoordinators(client.cluster, ABORT_S)
    for each in transactions:
        try:
            coordinators.fence(each.producer(query), options.transaction_ms)
        except ClientError as error:
            LOG.warning("task %s has left a transaction open: %s", each.task, error)


def _sweep(client: ProcessClient, options: WriteOptions, query: str, *, now: bool) -> None:
    """Abort the open transactions of attempts that Spark has abandoned: they would hold back
    committed readers, and could still write. No other attempt runs while the driver commits."""
    if not now and time.monotonic() - client.swept.get(query, float("-inf")) < SWEEP_S:
        return
    client.swept[query] = time.monotonic()
    coordinators = TransactionCoordinators(client.cluster, ABORT_S)
    try:
        listed, failed = list_transactions(client.cluster, Filters(states=[_OPEN]))
        for error in failed:
            LOG.info("abandoned transactions may stay open for a while: %s", error)
        for each in listed:
            if is_of_query(query, each.transactional_id):
                coordinators.begin(each.transactional_id, options.transaction_ms)
    except ClientError as error:
        LOG.warning("abandoned transactions of query %s stay open for now: %s", query, error)
