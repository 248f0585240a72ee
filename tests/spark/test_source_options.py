"""Options of the source: valid values, and errors for invalid ones."""

import ast
import logging
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.apps.spark.client_options import (
    BOOTSTRAP,
    READ_BY_SOURCE,
    READ_HERE,
    SOURCE_OPTIONS,
    WITHOUT_MEANING,
    OptionError,
)
from tidelog.apps.spark.source.data_loss import OnDataLoss
from tidelog.apps.spark.source.source_options import (
    SourceOptions,
    Subscription,
    batch_options,
    stream_options,
)
from tidelog.core.types import TopicPartition
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.shell.client.offsets import EARLIEST, LATEST


def given(**more: str) -> dict[str, str]:
    found = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t", **more}
    return {name.lower(): text for name, text in found.items() if text != "-"}


def batch(**more: str) -> SourceOptions:
    return batch_options(given(**more))


def stream(**more: str) -> SourceOptions:
    return stream_options(given(**more))


def test_defaults_are_those_of_the_connector() -> None:
    found = batch()
    assert found.subscription == Subscription(topics=("t",))
    assert (found.starting.everywhere, found.ending.everywhere) == (EARLIEST, LATEST)
    assert (found.isolation, found.on_data_loss) == (READ_COMMITTED, OnDataLoss.FAIL)
    assert stream().starting.everywhere == LATEST
    assert pickle.loads(pickle.dumps(found)) == found


def test_topics_are_given_by_list_pattern_or_assignment() -> None:
    assert stream(subscribe=" a, b ,a").subscription.topics == ("a", "b")
    assert stream(subscribe="-", subscribePattern="or.*").subscription.pattern == "or.*"
    assigned = stream(subscribe="-", assign='{"a": [1, 0]}').subscription.partitions
    assert assigned == (TopicPartition("a", 1), TopicPartition("a", 0))


def test_positions_and_their_precedence() -> None:
    offsets = '{"t": {"0": 5, "1": -2}}'
    found = stream(startingOffsets=offsets).starting
    assert found.offsets == {TopicPartition("t", 0): 5, TopicPartition("t", 1): EARLIEST}
    found = batch(startingOffsets=offsets, startingOffsetsByTimestamp='{"t": {"0": 9}}').starting
    assert found.timestamps == {TopicPartition("t", 0): 9}
    assert batch(startingOffsets=offsets, startingTimestamp="7").starting.timestamp == 7
    assert batch(endingTimestamp="8").ending.timestamp == 8
    assert batch(endingTimestamp="8").ending.else_latest
    assert not batch(startingTimestamp="7").starting.else_latest
    later = batch(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest")
    assert later.starting.else_latest
    found.check_partitions([TopicPartition("t", 0)])
    with pytest.raises(OptionError, match=r"leaves out t-1; name every partition"):
        found.check_partitions([TopicPartition("t", 0), TopicPartition("t", 1)])
    with pytest.raises(OptionError, match="names t-0, which this query does not read"):
        found.check_partitions([])


def test_limits_and_sizes() -> None:
    found = stream(
        maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="2m"
    ).admission
    assert found == (100, 10, 120.0)
    assert stream().admission == (None, None, 900.0)
    assert batch(minPartitions="7", maxRecordsPerPartition="9").splitting == (7, 9)


def test_isolation_in_either_spelling() -> None:
    assert batch(isolationLevel="READ_UNCOMMITTED").isolation == READ_UNCOMMITTED
    assert batch(**{"kafka.isolation.level": "read_uncommitted"}).isolation == READ_UNCOMMITTED


def test_data_loss_options() -> None:
    assert batch(failOnDataLoss="false").on_data_loss == OnDataLoss.REPORT
    assert batch(failOnDataLoss="true").on_data_loss == OnDataLoss.FAIL
    assert batch(onDataLoss="Skip").on_data_loss == OnDataLoss.SKIP
    assert batch(onDataLoss="skip", failOnDataLoss="false").on_data_loss == OnDataLoss.SKIP
    found = batch(onDataLoss="report", dataLossPath="file:///a/lost%20ones")
    assert found.data_loss_path == "/a/lost ones"


def test_settings_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = batch(
            **{
                "kafka.client.id": "me",
                "kafka.request.timeout.ms": "2500",
                "kafka.default.api.timeout.ms": "9000",
                "kafka.max.partition.fetch.bytes": "65536",
                "kafka.metadata.max.age.ms": "0",
                "kafka.group.id": "g",
                "kafka.security.protocol": "plaintext",
            }
        ).client
    assert (found.client_id, found.timeout_s, found.patience_s) == ("me", 2.5, 9.0)
    assert (found.fetch_bytes, found.metadata_age_s) == (65536, 0.0)
    assert "no effect on tidelog's client: kafka.group.id" in caplog.text
    short = batch_options({"bootstrapservers": "a:1,b:2", "subscribe": "t"})
    assert short.client.bootstrap == "a:1,b:2"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"subscribe": "-"}, "no topic is named; give one of subscribe, subscribePattern and"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign are given; give one of"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "-", "subscribePattern": "("}, "is not a regular expression"),
        ({"subscribe": "-", "assign": '{"a": 0}'}, "'a' has no list of partitions"),
        ({"subscribe": "-", "assign": "a"}, "assign is 'a'; give JSON"),
        ({"kafka.bootstrap.servers": "-"}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "here:x"}, "'here:x' is not an address"),
        ({"bootstrapServers": "there:1"}, "differ; give one of them"),
        ({"startingOfsets": "earliest"}, "has no option 'startingofsets'; did you mean starting"),
        ({"qwerty": "1"}, "has no option 'qwerty'; docs/reference/spark-options.md"),
        ({"startingOffsets": "latest"}, "leaves a batch nothing to read"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "leaves a batch nothing to read"),
        (
            {"startingOffsets": '{"t": {"0": -3}}'},
            "startingOffsets: '0': -3 of topic 't' is invalid; give",
        ),
        ({"startingOffsets": '{"t": 1}'}, "'t' has no partitions"),
        ({"startingTimestamp": "soon"}, "give milliseconds since 1970"),
        ({"startingTimestamp": str(2**63)}, "give milliseconds since 1970"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets is earliest"),
        ({"minPartitions": "0"}, "minPartitions is '0'; give a whole number above 0"),
        ({"maxTriggerDelay": "soon"}, "give a time such as 30s"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is above maxOffsets"),
        ({"includeHeaders": "yes"}, "give true or false"),
        ({"isolationLevel": "serializable"}, "give one of read_uncommitted, read_committed"),
        ({"onDataLoss": "ignore"}, "give one of fail, report, skip"),
        ({"onDataLoss": "skip", "failOnDataLoss": "true"}, "differ; give onDataLoss"),
        ({"dataLossPath": "/lost"}, "dataLossPath needs onDataLoss=report, but onDataLoss is fail"),
        ({"onDataLoss": "report", "dataLossPath": "s3://b/l"}, "give a folder that driver and"),
        ({"onDataLoss": "report", "dataLossPath": "lost"}, "is not an absolute path"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.security.protocol is missing, so sasl.mech"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol=TLS must be one of"),
        ({"kafka.security.protocoll": "SSL"}, "kafka.security.protocoll is not supported; remove"),
        ({"kafka.ssl.provider": "x"}, "kafka.ssl.provider is not supported; remove it"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "kafka.* settings: PLAIN needs a user and a password",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/none.jks"},
            "kafka.* settings: JKS is not supported, only PEM: convert the truststore",
        ),
        ({"kafka.auto.offset.reset": "none"}, "can't be set; use startingOffsets"),
        ({"kafka.request.timeout.ms": "-1"}, "kafka.request.timeout.ms is '-1'; give a whole"),
        ({"kafka.isolation.level": "read_committed", "isolationLevel": "read_uncommitted"}, "diff"),
    ],
)
def test_invalid_options_are_rejected_in_one_line(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        batch(**more)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is for batch reads"):
        stream(**{name: "latest"})


def test_every_option_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md").read_text()
    named = set(re.findall(r"`([\w.]+)`", page))
    assert named >= {*SOURCE_OPTIONS, *WITHOUT_MEANING, BOOTSTRAP}
    assert named >= {f"kafka.{name}" for name in READ_HERE | READ_BY_SOURCE}


@pytest.mark.spark
def test_spark_finds_the_format_without_much_to_import() -> None:
    """Spark imports every `pyspark_` module to look for formats.

    Our module must be cheap to import, and work without Arrow and numba.
    """
    look = (
        "import sys, pyspark.sql.datasource\n"
        "sys.modules.update(dict.fromkeys(['pyarrow', 'numba', 'numpy']))\n"
        "before = set(sys.modules)\n"
        "from pyspark_tidelog import DefaultSource\n"
        "assert DefaultSource.name() == 'tidelog'\n"
        "print(sorted(name for name in set(sys.modules) - before if 'tidelog' in name))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=300
    )
    assert ast.literal_eval(found.stdout) == [
        "pyspark_tidelog",
        "tidelog",
        "tidelog.apps",
        "tidelog.apps.spark",
        "tidelog.apps.spark.data_source",
    ]
