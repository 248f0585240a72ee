"""The sink's options and columns, and the producer ids of tasks; without Spark."""

from typing import Any, NamedTuple

import pytest

from tidelog.apps.spark.client_options import OptionError
from tidelog.apps.spark.sink.identity import EPOCHS, Origin, identity_of, task_of
from tidelog.apps.spark.sink.sink_errors import WrongColumns
from tidelog.apps.spark.sink.write_options import SinkColumns, sink_columns, write_options
from tidelog.core.record.compression import Codec

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


class Kind(NamedTuple):
    name: str

    def simpleString(self) -> str:
        return self.name


class Column(NamedTuple):
    name: str
    dataType: Kind


class Schema(NamedTuple):
    fields: list[Column]


def schema(**columns: str) -> Schema:
    return Schema([Column(name, Kind(kind)) for name, kind in columns.items()])


def test_options_have_the_names_of_spark_s_sink() -> None:
    found = write_options(
        {
            **BROKER,
            "topic": "t",
            "Kafka.Compression.Type": "zstd",
            "kafka.batch.size": "65536",
            "kafka.delivery.timeout.ms": "5000",
            "kafka.linger.ms": "20",
            "checkpointLocation": "somewhere",
            "txnAppId": "nightly",
            "txnVersion": "7",
            "transactional": "TRUE",
            "kafka.transaction.timeout.ms": "60000",
        }
    )
    assert (found.topic, found.codec, found.batch_bytes) == ("t", Codec.ZSTD, 65536)
    assert (found.delivery_s, found.named) == (5.0, ("nightly", 7))
    assert (found.transactional, found.transaction_ms) == (True, 60_000)
    assert not write_options(BROKER).transactional


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({**BROKER, "topics": "t"}, "did you mean topic"),
        ({**BROKER, "kafka.acks": "1"}, "all in-sync replicas"),
        ({**BROKER, "kafka.compression.type": "brotli"}, "give one of none, gzip"),
        ({**BROKER, "kafka.enable.idempotence": "False"}, "needs it"),
        ({**BROKER, "kafka.enable.idempotence": "no"}, "give true or false"),
        ({**BROKER, "kafka.transactional.id": "x"}, "use transactional=true"),
        ({**BROKER, "transactional": "perhaps"}, "give true or false"),
        ({**BROKER, "kafka.transaction.timeout.ms": "1000"}, "needs transactional=true"),
        ({**BROKER, "txnAppId": "x"}, "give both or none"),
        ({**BROKER, "txnAppId": "x", "txnVersion": "-1"}, "whole number"),
        ({**BROKER, "onReplayMismatch": "maybe"}, "fail, accept"),
    ],
)
def test_invalid_options_are_rejected_in_one_line(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told) as refused:
        write_options(options)
    assert "\n" not in str(refused.value)


def test_columns_are_found_and_others_ignored() -> None:
    everything = schema(
        key="binary",
        value="string",
        topic="string",
        partition="int",
        offset="bigint",
        timestamp="timestamp",
        headers="array<struct<key:string,value:binary>>",
    )
    assert sink_columns(everything, None) == SinkColumns(1, 0, 6, 2, 3, 5)
    assert sink_columns(everything, "t").topic is None
    assert sink_columns(schema(value="varchar(20)"), "t") == SinkColumns(0)


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ({"key": "string"}, "t", "column 'value' is missing .columns: key"),
        ({"value": "bigint"}, "t", "'value' is bigint; cast it to string or binary"),
        ({"value": "string"}, None, "no topic is set: set the option"),
        ({"value": "string", "partition": "bigint"}, "t", "cast it to int"),
        ({"value": "string", "headers": "map<string,string>"}, "t", "cast it to array"),
    ],
)
def test_invalid_columns_are_rejected_in_one_line(
    columns: dict[str, str], topic: str | None, told: str
) -> None:
    with pytest.raises(WrongColumns, match=told):
        sink_columns(schema(**columns), topic)


def test_a_task_is_the_same_producer_in_every_attempt() -> None:
    one = identity_of(Origin("query", 7, 3))
    assert one == identity_of(Origin("query", 7, 3))
    assert one.epoch == 7
    assert identity_of(Origin("query", 8, 3)).producer_id == one.producer_id
    assert task_of(one.producer_id) == 3
    assert 2**62 <= one.producer_id < 2**63


def test_tasks_queries_and_exhausted_epochs_have_different_producers() -> None:
    origins: list[Any] = [
        Origin(query, batch, task)
        for query in ("a", "b")
        for batch in (0, EPOCHS, 2 * EPOCHS)
        for task in (0, 1, 65535, 65536)
    ]
    assert len({identity_of(origin).producer_id for origin in origins}) == len(origins)
    assert {identity_of(origin).epoch for origin in origins} == {0}
    first = identity_of(Origin("a", 0, 0))
    assert first.is_sibling(identity_of(Origin("a", 0, 9)).producer_id)
    assert not first.is_sibling(identity_of(Origin("b", 0, 9)).producer_id)
