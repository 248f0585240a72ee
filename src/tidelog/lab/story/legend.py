"""The signs in the output of stories, and their meaning. Each sign has one meaning.

`m1@0` is a record and the leader epoch in which it was written. A leader epoch with its start
offset is `0:0`, as in `tidelog partition describe`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign, what it means, and a pattern that finds it in the output."""

    sign: str
    meaning: str
    pattern: str


_LEADER_EPOCH = r"(?m)^(?!.*(producer=\d|produce |EndTxn|ToTxn)).*\bepoch=\d"
"""An epoch in a line that is not about a producer, whose epoch is another one."""
SIGNS = (
    Sign("LEO", "log end offset: the offset of the next record", r"\bLEO\b"),
    Sign("HW", "high watermark: records below it are committed", r"\bHW\b"),
    Sign("LSO", "last stable offset: read-committed consumers read below it", r"\bLSO\b"),
    Sign("open=7:1", "producer 7 has an open transaction from offset 1 on", r"\bopen=\d"),
    Sign("commit(7)", "the marker that commits the transaction of producer 7", r"\bcommit\(\d"),
    Sign("abort(7)", "the marker that aborts the transaction of producer 7", r"\babort\(\d"),
    Sign("start", "log start offset: the first offset that is left", r"\bstart=\d"),
    Sign("ISR", "in-sync replicas; a record that all of them have is committed", r"\bISR\b"),
    Sign("ELR", "replicas not in sync that have all committed records and may lead", r"\bELR\b"),
    Sign("m1@0", "record m1, written in leader epoch 0", r"\w@\d"),
    Sign("[m1 m2]", "the records in a response", r"-> \w+  \[\w"),
    Sign("[0:0 1:2]", "leader epochs as epoch:start offset", r"epochs=\[|\bepochs \w+ \d+:\d"),
    Sign("epoch=1", "the leader epoch that the replica knows", _LEADER_EPOCH),
    Sign(
        "producer=0 epoch=1",
        "a producer id and its producer epoch; messages with a lower epoch are refused",
        r"\bproducer=\d+ epoch=\d",
    ),
    Sign(
        "Ongoing(t)",
        "the state of transactional id t, a record in the log of its coordinator",
        r"\b(Empty|Ongoing|Prepare\w+|Complete\w+)\(",
    ),
    Sign(
        "generation=1",
        "the members of the consumer group between two rebalances",
        r"\bgeneration=\d",
    ),
    Sign(
        "last_epoch=0",
        "epoch of the follower's last record, for the leader to compare",
        r"\blast_epoch=\d",
    ),
    Sign("diverging", "the leader's log has another history from this offset on", r"\bdiverging\b"),
    Sign("(lost)", "the message does not arrive", r"\(lost\)"),
    Sign("(held), (late)", "the message waits, and arrives later", r"\((held|late)\)"),
)
"""All signs, in the order in which a legend lists them."""


def used(lines: Iterable[str]) -> list[Sign]:
    """Return the signs that occur in the lines."""
    text = "\n".join(lines)
    return [sign for sign in SIGNS if re.search(sign.pattern, text)]
