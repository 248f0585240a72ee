"""What the system knows of this process, under Prometheus' usual names.

From `/proc` where there is one; elsewhere what `resource` has. Nothing here waits or fails: what
can't be found out is left out.
"""

import os
import resource
import time


def process_facts() -> dict[str, float]:
    """Metrics by name."""
    times = os.times()
    facts: dict[str, float] = {"process_cpu_seconds_total": times.user + times.system}
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        facts["process_max_fds"] = soft
    try:
        facts["process_open_fds"] = len(os.listdir("/proc/self/fd"))
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            # The name of the program may hold anything, so count from behind it.
            fields = file.read().rpartition(")")[2].split()
        facts["process_virtual_memory_bytes"] = int(fields[20])
        facts["process_resident_memory_bytes"] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        ticks = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        facts["process_start_time_seconds"] = _boot_time_s() + ticks
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        facts.setdefault("process_resident_memory_bytes", peak)
    return facts


def _boot_time_s() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.time() - time.clock_gettime(clock)
