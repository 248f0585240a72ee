"""All checks of a history of transactions."""

from collections.abc import Iterable, Mapping

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.transactions.cycles import check_cycles
from tidelog.apps.verify.checker.transactions.history import TxnHistory
from tidelog.apps.verify.checker.transactions.outcomes import Logs, check_outcomes
from tidelog.apps.verify.checker.transactions.processing import check_processing
from tidelog.apps.verify.checker.transactions.reads import check_read_all, check_reads


def check_transactions(
    history: TxnHistory,
    logs: Logs,
    committed_offsets: Mapping[int, int],
    full_readers: Iterable[str],
) -> Findings:
    """Run all checks.

    `committed_offsets` has the offset of the processing group by input partition. `full_readers`
    are the consumers that read everything from the start.
    """
    findings = check_outcomes(history, logs)
    findings.merge(check_reads(history, logs))
    for reader in full_readers:
        findings.merge(check_read_all(history, logs, reader))
    findings.merge(check_processing(history, logs, committed_offsets))
    findings.merge(check_cycles(history, logs))
    return findings
