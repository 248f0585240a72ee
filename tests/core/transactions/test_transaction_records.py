"""The records of `__transaction_state`, compared with what Kafka 4.3.1 wrote."""

import pytest

from tidelog.core.coordinator.shard import DamagedRecord
from tidelog.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from tidelog.core.transactions.transaction import Transaction, TransactionState
from tidelog.core.types import TopicPartition

# Written by Apache Kafka 4.3.1 at transaction.version 2, for a client that uses version 0.
KEY = bytes.fromhex("00000005742d6f6e65")
EMPTY = bytes.fromhex(
    "000100000000000007d100000000ea600000000001a1df8b0bafffffffffffffffff01000800000000000007d1"
)
ONGOING = bytes.fromhex(
    "000100000000000007d100000000ea6001020474786e03000000000000000100000001a1df8b0bc9"
    "000001a1df8b0bc901000800000000000007d1"
)
COMPLETE = bytes.fromhex(
    "000100000000000007d100000000ea600401000001a1df8b0c24000001a1df8b0bc901000800000000000007d1"
)
UPDATED, STARTED = 0x01A1DF8B0C24, 0x01A1DF8B0BC9
TXN = frozenset({TopicPartition("txn", 0), TopicPartition("txn", 1)})
KAFKAS = [
    (
        EMPTY,
        Transaction(2001, 0, 60_000, TransactionState.EMPTY, frozenset(), -1, 0x01A1DF8B0BAF, 2001),
    ),
    (
        ONGOING,
        Transaction(2001, 0, 60_000, TransactionState.ONGOING, TXN, STARTED, STARTED, 2001),
    ),
    (
        COMPLETE,
        Transaction(
            2001, 0, 60_000, TransactionState.COMPLETE_COMMIT, frozenset(), STARTED, UPDATED, 2001
        ),
    ),
]
RICH = Transaction(
    7,
    32_767,
    1,
    TransactionState.PREPARE_ABORT,
    frozenset({TopicPartition("a", 300), TopicPartition("b" * 200, 0)}),
    5,
    6,
    7,
    8,
    2,
)


def test_keys_are_those_of_kafka() -> None:
    assert encode_key("t-one") == KEY
    assert decode_key(KEY) == "t-one"


@pytest.mark.parametrize(("data", "value"), KAFKAS)
def test_values_are_those_of_kafka(data: bytes, value: Transaction) -> None:
    assert decode_value(data) == value
    assert encode_value(value) == data


@pytest.mark.parametrize("value", [RICH, *(value for _, value in KAFKAS)])
def test_values_survive_a_round_trip(value: Transaction) -> None:
    assert decode_value(encode_value(value)) == value


def test_before_version_1_values_have_no_optional_fields() -> None:
    data = encode_value(RICH, 0)
    assert data[:2] == bytes(2)
    assert decode_value(data) == RICH._replace(
        previous_producer_id=-1, next_producer_id=-1, client_version=0
    )
    empty = KAFKAS[0][1]
    assert decode_value(encode_value(empty, 0)) == empty._replace(previous_producer_id=-1)


@pytest.mark.parametrize("data", [encode_value(RICH), encode_value(RICH, 0)])
def test_a_value_that_is_cut_off_is_damaged(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(DamagedRecord):
            decode_value(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0002") + RICH.producer_id.to_bytes(8, "big") + bytes(40),
        EMPTY[:16] + b"\x09" + EMPTY[17:],
        EMPTY[:17] + b"\xff\xff\xff\xff\xff" + EMPTY[18:],
    ],
    ids=["unknown version", "unknown state", "endless number"],
)
def test_a_value_with_an_impossible_field_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedRecord):
        decode_value(data)


def test_keys_of_other_kinds_are_ignored_and_cut_ones_are_damaged() -> None:
    assert decode_key(bytes.fromhex("0001") + KEY[2:]) is None
    for data in (b"", b"\x00", KEY[:3], KEY[:-1], bytes.fromhex("0000ffff"), KEY[:-1] + b"\xff"):
        with pytest.raises(DamagedRecord):
            decode_key(data)
