"""The names of options: which there are, and the near one for a name that there is not.

Spark hands options over in lower case; messages spell them as the documentation does.
Always true: a name that is in no table is refused, so that a slip of the pen is never taken
for a wish.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

BOOTSTRAP = "kafka.bootstrap.servers"
BOOTSTRAP_SHORT = "bootstrapServers"
CLIENT_PREFIX = "kafka."

SOURCE_OPTIONS = (
    BOOTSTRAP_SHORT,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "isolationLevel",
    "failOnDataLoss",
    "onDataLoss",
    "dataLossPath",
    "commitToGroup",
)
"""What the source understands, beside `kafka.` settings of the client."""

WITHOUT_MEANING = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "useDeprecatedOffsetFetching",
)
"""Options of Spark's connector that are taken and change nothing here."""


class OptionError(ValueError):
    """An option is missing, unknown, or wrong; one line."""


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise OptionError for the first name of `given` (any case) that is not among `known`;
    names of client settings (`kafka.`) pass."""
    spelled = {name.lower(): name for name in known}
    for name in given:
        lower = name.lower()
        if lower in spelled or lower.startswith(CLIENT_PREFIX):
            continue
        near = get_close_matches(lower, spelled, n=2, cutoff=0.7)
        hint = (
            f"did you mean {' or '.join(spelled[each] for each in near)}?"
            if near
            else "docs/reference/spark-options.md lists those there are"
        )
        raise OptionError(f"{what} has no option {name!r}; {hint}")


def text_of(options: Mapping[str, str], name: str) -> str | None:
    """An option's text without blanks around it, by its spelled name; None: not given."""
    found = options.get(name.lower())
    return None if found is None else found.strip()


def positive(options: Mapping[str, str], name: str) -> int | None:
    """A whole number above 0. Raises OptionError."""
    text = text_of(options, name)
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise OptionError(f"{name} is {text!r}; give a whole number above 0")
    return int(text)


def truth(options: Mapping[str, str], name: str) -> bool | None:
    """true or false. Raises OptionError."""
    text = text_of(options, name)
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}; give true or false")
    return text.lower() == "true"


def one_of(options: Mapping[str, str], name: str, choices: Iterable[str]) -> str | None:
    """One of a few words, in any case. Raises OptionError."""
    text = text_of(options, name)
    if text is None:
        return None
    found = [choice for choice in choices if choice == text.lower()]
    if not found:
        raise OptionError(f"{name} is {text!r}; give one of {', '.join(choices)}")
    return found[0]
