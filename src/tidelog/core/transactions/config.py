"""Settings of the transaction coordinator, with Kafka's names and defaults, in milliseconds."""

from typing import NamedTuple


class TransactionConfig(NamedTuple):
    """The transaction coordinator's settings."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
