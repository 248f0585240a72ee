"""The machine of a benchmark run: its description, and its preparation before measurements."""

import os
import resource
import time
from datetime import UTC, datetime
from mmap import MAP_ANONYMOUS, MAP_POPULATE, MAP_PRIVATE, mmap
from pathlib import Path

from beside_kafka.kafka_cluster import java_version, release
from processes import interpreter

GIGABYTE = 10**9
PAGE = os.sysconf("SC_PAGE_SIZE")


def described() -> dict[str, str]:
    """Describe the machine and both sides; exit with one line if Java is missing."""
    java = java_version()
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * PAGE / (1 << 30)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({cpus[0] if cpus else os.uname().machine}),"
        f" {memory:.0f} GiB, Linux {os.uname().release}",
        "ours": f"Tidelog on {interpreter()}",
        "theirs": f"{release()} on {java}",
    }


def allow_many_files() -> None:
    """Raise the limit of open files, which brokers inherit.

    A Kafka broker with 3,000 partitions has 10,000 files open.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def touch_memory(gigabytes: float) -> str:
    """Fill free memory and release it, so that no later measurement pays for the first access.

    The first access to a page costs several times more if a virtual machine never used the page, or
    if its host reclaimed it.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * PAGE
    wanted = min(int(gigabytes * GIGABYTE), free * 3 // 4)
    began = time.monotonic()
    mmap(-1, max(wanted, PAGE), MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE).close()
    seconds = time.monotonic() - began
    return f"{wanted / GIGABYTE:.1f} GB of memory were touched first, in {seconds:.0f} s"
