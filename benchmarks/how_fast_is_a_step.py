"""The CPU time of one produce and of one follower fetch in the replication core.

Estimate: a step makes three or four slotted objects (0.2 µs each), visits two followers, and
patches twelve bytes in a header: 4 to 6 µs. The bound is about 10 µs per partition. Prints a table,
or JSON with --format json. Figures are CPU time, the best of several rounds, because other work on
the machine only adds to it.
"""

import argparse
import json
import platform
import struct
import sys
import time
from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.record.record_batch import parse
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition, PartitionConfig

BOUND_US = 10.0
A, B, C = 1, 2, 3
BROKERS = {A: 1, B: 1, C: 1}


def partition(local: int) -> Partition:
    """Return a replica of a partition with three replicas that A leads."""
    replica = Partition(local, PartitionConfig(min_insync_replicas=2), BROKERS, LeaderEpochs())
    replica.step(on.PartitionChanged(A, 0, 0, (A, B, C), (A, B, C), False, 0))
    return replica


def sample_batch() -> bytearray:
    """Return a batch of a hundred 100-byte records as a producer sends it (CRC unset)."""
    size = 61 + 100 * 110
    return bytearray(
        struct.pack(">qiibIhiqqqhii", 0, size - 12, -1, 2, 0, 0, 99, 1000, 1000, -1, -1, -1, 100)
        + bytes(size - 61)
    )


def produce(rounds: int) -> None:
    """Parse the header and step, with acks=all."""
    leader, buffer = partition(A), sample_batch()
    for _ in range(rounds):
        leader.step(on.ProduceReceived(7, parse(buffer), on.ACKS_ALL, 0))


def follower_fetch(rounds: int) -> None:
    """Step with fetches of two followers in turn; each moves the high watermark's minimum."""
    leader, buffer = partition(A), sample_batch()
    for _ in range(rounds // 2):
        leader.step(on.ProduceReceived(7, parse(buffer), on.ACKS_LEADER, 0))
    for step in range(rounds // 2):
        for broker in (B, C):
            leader.step(on.FollowerFetchReceived(7, broker, step * 100, 0, 0, 0, 1, step))


def follower_append(rounds: int) -> None:
    """Step with fetch responses of one batch each: check, append, high watermark."""
    follower, buffer = partition(B), sample_batch()
    for step in range(rounds):
        batch = parse(buffer)
        batch.assign(step * 100, 0)
        reply = on.FetchAnswered(0, step * 100, ErrorCode.NONE, (batch,), step * 100, 0, None, step)
        follower.step(reply)


def cost_us(work: Callable[[int], None], rounds: int = 20_000, repeat: int = 5) -> float:
    """Return the CPU microseconds of a round, the best of `repeat`."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work(rounds)
        best = min(best, time.process_time() - start)
    return best / rounds * 1e6


def main() -> int:
    """Print the costs and the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    figures = {
        "produce, acks=all (parse + step)": cost_us(produce),
        "follower fetch on the leader": cost_us(follower_fetch),
        "fetch reply on the follower (parse + step)": cost_us(follower_append),
    }
    if arguments.format == "json":
        report = {"python": platform.python_version(), "bound_us": BOUND_US, "us": figures}
        print(json.dumps(report, indent=2))
    else:
        print(f"CPU microseconds per partition, Python {platform.python_version()}")
        for name, figure in figures.items():
            print(f"  {name:<44} {figure:6.2f}   (bound {BOUND_US:.0f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
