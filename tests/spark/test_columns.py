"""The columns of a topic's row are those of Spark's own source; other schemas are rejected."""

from typing import Any

import pyarrow as pa
import pytest

from tidelog.apps.spark.columns import WrongSchema, arrow_schema, check_schema, topic_schema

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SPARKS_OWN = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)
HEADERS = "headers array<struct<key:string,value:binary>>"


def from_ddl(text: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(text)


def test_the_columns_are_those_of_sparks_own_source_and_the_epoch() -> None:
    ours = from_ddl(f"{SPARKS_OWN}, leader_epoch int")
    assert topic_schema(include_headers=False) == ours
    assert topic_schema(include_headers=True) == from_ddl(
        f"{SPARKS_OWN}, leader_epoch int, {HEADERS}"
    )


def test_the_arrow_schema_matches_sparks_schema() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    narrow = from_ddl(f"{HEADERS}, offset bigint not null, value binary")
    for schema in (topic_schema(True), topic_schema(False), narrow):
        assert check_schema(schema) == to_arrow_schema(schema, timezone="UTC")
    assert arrow_schema(include_headers=True) == check_schema(topic_schema(True))
    assert arrow_schema().field("offset").type == pa.int64()


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("keys binary", "has no column 'keys'; it has key, value, topic"),
        (
            "value string",
            "column 'value' is binary, not string; read it with its own type, then cast it",
        ),
        ("offset int", "column 'offset' is bigint, not int"),
        ("headers array<binary>", "column 'headers' is array<struct<key:string,value:binary>>"),
        ("key binary not null", "column 'key' may be null; remove NOT NULL"),
        ("key binary, key binary", "lists a column twice"),
    ],
)
def test_invalid_schemas_are_rejected_in_one_line(ddl: str, why: str) -> None:
    with pytest.raises(WrongSchema, match=why) as caught:
        check_schema(from_ddl(ddl))
    assert "\n" not in str(caught.value)


def test_a_schema_without_columns_is_rejected() -> None:
    from pyspark.sql.types import StructType

    with pytest.raises(WrongSchema, match="name some of key, value"):
        check_schema(StructType([]), include_headers=True)
