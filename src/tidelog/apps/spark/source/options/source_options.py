"""What a reader was asked for: every option of `format("tidelog")` for reading, understood.

Names and meaning are those of Spark's Kafka connector, so that a query moves over by its
format alone; docs/reference/spark-options.md says which are ours. Always true: whoever holds
`SourceOptions` holds a wish that makes sense as far as that can be told without a broker.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.apps.spark.source.loss.policy import OnDataLoss
from tidelog.apps.spark.source.options.client_settings import (
    READ_BY_SOURCE,
    ClientSettings,
    client_settings,
)
from tidelog.apps.spark.source.options.known import (
    BOOTSTRAP,
    CLIENT_PREFIX,
    SOURCE_OPTIONS,
    WITHOUT_MEANING,
    OptionError,
    one_of,
    positive,
    refuse_unknown,
    text_of,
    truth,
)
from tidelog.apps.spark.source.options.positions import (
    Positions,
    ending_positions,
    parse_assignment,
    refuse_endings,
    starting_positions,
)
from tidelog.core.types import TopicPartition
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.shell.client.offsets import EARLIEST, LATEST

ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
MAX_TRIGGER_DELAY_S = 15 * 60.0
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)?")


class Subscription(NamedTuple):
    """Which partitions are read; one of these is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Admission(NamedTuple):
    """How much of what is there goes into one micro-batch."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = MAX_TRIGGER_DELAY_S


class Splitting(NamedTuple):
    """How ranges are cut into tasks."""

    min_partitions: int | None = None
    max_records: int | None = None


class SourceOptions(NamedTuple):
    """A reader's wishes; can be pickled."""

    client: ClientSettings
    subscription: Subscription
    starting: Positions
    ending: Positions
    """Of batches."""
    splitting: Splitting
    admission: Admission
    """Of streams."""
    isolation: int
    on_data_loss: OnDataLoss
    data_loss_path: str | None
    commit_to_group: str | None


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """For `spark.read`; keys in lower case. Raises OptionError."""
    return _options(options, batch=True)


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """For `spark.readStream`; keys in lower case. Raises OptionError."""
    refuse_endings(options)
    return _options(options, batch=False)


def include_headers(options: Mapping[str, str]) -> bool:
    """Whether rows have headers unless a schema says otherwise."""
    return truth(options, "includeHeaders") or False


def _options(options: Mapping[str, str], *, batch: bool) -> SourceOptions:
    refuse_unknown(options, (*SOURCE_OPTIONS, *WITHOUT_MEANING, BOOTSTRAP), "format tidelog")
    include_headers(options)
    policy = _on_data_loss(options)
    return SourceOptions(
        client=client_settings(options, READ_BY_SOURCE),
        subscription=_subscription(options),
        starting=starting_positions(options, EARLIEST if batch else LATEST, batch=batch),
        ending=ending_positions(options) if batch else Positions(everywhere=LATEST),
        splitting=Splitting(
            positive(options, "minPartitions"), positive(options, "maxRecordsPerPartition")
        ),
        admission=_admission(options),
        isolation=_isolation(options),
        on_data_loss=policy,
        data_loss_path=_data_loss_path(options, policy),
        commit_to_group=text_of(options, "commitToGroup") or None,
    )


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = {
        name: text
        for name in ("subscribe", "subscribePattern", "assign")
        if (text := text_of(options, name)) is not None
    }
    if len(given) != 1:
        what = " and ".join(given) + " are given" if given else "no topic is named"
        raise OptionError(f"{what}; give one of subscribe, subscribePattern and assign")
    [(name, text)] = given.items()
    if name == "assign":
        return Subscription(partitions=parse_assignment(text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(t.strip() for t in text.split(",") if t.strip()))
        if not topics:
            raise OptionError("subscribe names no topic; give names with commas between them")
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is no pattern: {error}") from None
    if not text:
        raise OptionError("subscribePattern is empty; give a regular expression")
    return Subscription(pattern=text)


def _admission(options: Mapping[str, str]) -> Admission:
    most, least = (
        positive(options, "maxOffsetsPerTrigger"),
        positive(options, "minOffsetsPerTrigger"),
    )
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}; lower it"
        )
    text = text_of(options, "maxTriggerDelay")
    if text is None:
        return Admission(most, least)
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionError(f"maxTriggerDelay is {text!r}; give a time such as 30s or 15m")
    return Admission(most, least, int(found[1]) * UNITS_S[found[2] or "ms"])


def _isolation(options: Mapping[str, str]) -> int:
    levels = tuple(ISOLATION_LEVELS)
    ours = one_of(options, "isolationLevel", levels)
    client = one_of(options, f"{CLIENT_PREFIX}isolation.level", levels)
    if ours and client and ours != client:
        raise OptionError("isolationLevel and kafka.isolation.level differ; give one of them")
    return ISOLATION_LEVELS[ours or client or "read_uncommitted"]


def _on_data_loss(options: Mapping[str, str]) -> OnDataLoss:
    ours = one_of(options, "onDataLoss", tuple(OnDataLoss))
    fail = truth(options, "failOnDataLoss")
    theirs = None if fail is None else OnDataLoss.FAIL if fail else OnDataLoss.REPORT
    if ours is None:
        return theirs or OnDataLoss.FAIL
    if fail is not None and fail != (ours == OnDataLoss.FAIL):
        raise OptionError(
            f"onDataLoss {ours} and failOnDataLoss {str(fail).lower()} differ; give onDataLoss"
        )
    return OnDataLoss(ours)


def _data_loss_path(options: Mapping[str, str], policy: OnDataLoss) -> str | None:
    text = text_of(options, "dataLossPath")
    if not text:
        return None
    if policy != OnDataLoss.REPORT:
        raise OptionError(f"dataLossPath is for onDataLoss report, which is {policy} here")
    parts = urlsplit(text)
    if parts.scheme not in ("", "file") or not (parts.path if parts.scheme else text).startswith(
        "/"
    ):
        raise OptionError(
            f"dataLossPath {text!r} is no folder from the root; give one that driver and"
            " executors share, such as /mnt/lake/lost"
        )
    return unquote(parts.path) if parts.scheme else text
