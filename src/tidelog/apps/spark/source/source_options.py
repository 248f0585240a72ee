"""Parse and check the options of a read, without a broker.

Names, meaning and precedence are those of Spark's Kafka connector, so that a query can be moved by
changing its format; docs/reference/spark-options.md lists the options that only this source has.
For starting and ending positions, one time for all partitions takes precedence over times by
partition, and these take precedence over offsets.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.apps.spark.client_options import (
    BOOTSTRAP,
    CLIENT_PREFIX,
    READ_BY_SOURCE,
    SOURCE_OPTIONS,
    WITHOUT_MEANING,
    ClientSettings,
    OptionError,
    client_settings,
    one_of,
    positive,
    reject_unknown,
    text_of,
    truth,
)
from tidelog.apps.spark.source.data_loss import OnDataLoss
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.shell.client.offsets import EARLIEST, LATEST

POSITION_NAMES = {"earliest": EARLIEST, "latest": LATEST}


class Positions(NamedTuple):
    """Where a read begins or ends; exactly one of the first four fields is set."""

    everywhere: int | None = None
    """EARLIEST or LATEST, in every partition."""
    offsets: Mapping[TopicPartition, Offset] | None = None
    """Offsets by partition; EARLIEST and LATEST may be among them."""
    timestamps: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    """Milliseconds since 1970; the position is the first record of this time or later."""
    option: str = ""
    """The option's name, for messages."""
    else_latest: bool = False
    """Use the end of the log if no record has this time or a later one; otherwise fail."""

    def check_partitions(self, found: Iterable[TopicPartition]) -> None:
        """Check that exactly the partitions that exist are named. Raises OptionError."""
        named = self.offsets if self.offsets is not None else self.timestamps
        if named is None:
            return
        missing = sorted(set(found) - named.keys())
        extra = sorted(named.keys() - set(found))
        if missing:
            raise OptionError(
                f"{self.option} leaves out {_listed(missing)};"
                " name every partition (-2 is the earliest offset, -1 the latest)"
            )
        if extra:
            raise OptionError(
                f"{self.option} names {_listed(extra)}, which this query does not read"
            )


def starting_positions(options: Mapping[str, str], default: int, *, batch: bool) -> Positions:
    """Return the positions at which a read begins. Raises OptionError."""
    found = _positions(options, "starting", default)
    strategy = one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    if batch and (found.everywhere == LATEST or LATEST in (found.offsets or {}).values()):
        raise OptionError(
            f"{found.option} is latest, which leaves a batch nothing to read;"
            " give earliest, offsets or a time"
        )
    return found._replace(else_latest=strategy == "latest")


def ending_positions(options: Mapping[str, str]) -> Positions:
    """Return the positions at which a batch ends. Raises OptionError."""
    found = _positions(options, "ending", LATEST)
    if found.everywhere == EARLIEST or EARLIEST in (found.offsets or {}).values():
        raise OptionError(f"{found.option} is earliest; give latest, offsets or a time")
    return found._replace(else_latest=True)


def reject_endings(options: Mapping[str, str]) -> None:
    """Raise OptionError if a stream has ending positions."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if text_of(options, name) is not None:
            raise OptionError(f"{name} is for batch reads; remove it, a stream has no end")


def _positions(options: Mapping[str, str], side: str, default: int) -> Positions:
    name = f"{side}Timestamp"
    text = text_of(options, name)
    if text is not None:
        if not text.isdecimal() or not _is_whole(int(text), 0):
            raise OptionError(f"{name} is {text!r}; give milliseconds since 1970")
        return Positions(timestamp=int(text), option=name)
    name = f"{side}OffsetsByTimestamp"
    text = text_of(options, name)
    if text is not None:
        return Positions(timestamps=_by_partition(name, text, 0), option=name)
    name = f"{side}Offsets"
    text = text_of(options, name)
    if text is None:
        return Positions(everywhere=default, option=name)
    if text.lower() in POSITION_NAMES:
        return Positions(everywhere=POSITION_NAMES[text.lower()], option=name)
    return Positions(offsets=_by_partition(name, text, EARLIEST), option=name)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse partitions such as `{"topic": [0, 1]}`. Raises OptionError."""
    shape = 'give JSON such as {"topic": [0, 1]}'
    found = _object("assign", text, shape)
    named = []
    for topic, listed in found.items():
        if not isinstance(listed, list) or not all(_is_whole(each, 0) for each in listed):
            raise OptionError(f"assign: {topic!r} has no list of partitions; {shape}")
        named += [TopicPartition(topic, partition) for partition in listed]
    if not named:
        raise OptionError(f"assign names no partition; {shape}")
    return tuple(dict.fromkeys(named))


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    names = " or earliest or latest" if least < 0 else ""
    shape = f'give JSON such as {{"topic": {{"0": 23}}}}{names}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(name, text, shape).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name}: {topic!r} has no partitions; {shape}")
        for partition, value in partitions.items():
            if not partition.isdecimal() or not _is_whole(value, least):
                raise OptionError(
                    f"{name}: {partition!r}: {value!r} of topic {topic!r} is invalid; {shape}"
                )
            found[TopicPartition(topic, int(partition))] = value
    return found


def _object(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"{name} is {text!r}; {shape}")
    return found


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _listed(keys: list[TopicPartition]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(map(str, keys[:3])) + more


ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
MAX_TRIGGER_DELAY_S = 15 * 60.0
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)?")


class Subscription(NamedTuple):
    """Which partitions are read; exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Admission(NamedTuple):
    """Limits on the number of offsets in one micro-batch."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = MAX_TRIGGER_DELAY_S


class Splitting(NamedTuple):
    """How ranges are split into tasks."""

    min_partitions: int | None = None
    max_records: int | None = None


class SourceOptions(NamedTuple):
    """All options of a read; Spark sends them to the executors."""

    client: ClientSettings
    subscription: Subscription
    starting: Positions
    ending: Positions
    """Only for batch reads."""
    splitting: Splitting
    admission: Admission
    """Only for streams."""
    isolation: int
    on_data_loss: OnDataLoss
    data_loss_path: str | None
    commit_to_group: str | None


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of `spark.read`, with lower-case names. Raises OptionError."""
    return _options(options, batch=True)


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of `spark.readStream`, with lower-case names. Raises OptionError."""
    reject_endings(options)
    return _options(options, batch=False)


def include_headers(options: Mapping[str, str]) -> bool:
    """Whether rows have the column `headers` if the user gives no schema."""
    return truth(options, "includeHeaders") or False


def _options(options: Mapping[str, str], *, batch: bool) -> SourceOptions:
    reject_unknown(options, (*SOURCE_OPTIONS, *WITHOUT_MEANING, BOOTSTRAP), "format tidelog")
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
            raise OptionError("subscribe names no topic; give topic names separated by commas")
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(
            f"subscribePattern {text!r} is not a regular expression: {error}"
        ) from None
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
    return ISOLATION_LEVELS[ours or client or "read_committed"]


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
        raise OptionError(
            f"dataLossPath needs onDataLoss=report, but onDataLoss is {policy}; set it to report"
        )
    parts = urlsplit(text)
    if parts.scheme not in ("", "file") or not (parts.path if parts.scheme else text).startswith(
        "/"
    ):
        raise OptionError(
            f"dataLossPath {text!r} is not an absolute path; give a folder that driver and"
            " executors share, such as /mnt/lake/lost"
        )
    return unquote(parts.path) if parts.scheme else text
