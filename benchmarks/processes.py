"""Processes of the benchmarks: build and run them, and measure their CPU and memory."""

import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_POPULATE, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any

GIGABYTE = 10**9
PAGE = os.sysconf("SC_PAGE_SIZE")
HERE = Path(__file__).parent
ROOT = HERE.parent
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PATIENCE_S = 300.0
"""Time limit of one load."""
FORGET_PEAK = "5"
"""Written to /proc/PID/clear_refs, this resets VmHWM."""


def compile_c(source: str, folder: Path) -> Path:
    """Compile a C program; return its path."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit(
            "the benchmarks need a C compiler: install gcc (Debian: apt-get install gcc libc6-dev)"
        )
    program = folder / Path(source).stem
    subprocess.run([compiler, "-O2", "-o", program, HERE / source, "-ldl", "-lpthread"], check=True)
    return program


def library() -> str:
    """Return the path of the librdkafka inside the confluent-kafka wheel."""
    import confluent_kafka

    found = sorted(
        (Path(confluent_kafka.__file__).parent.parent).glob("confluent_kafka.libs/librdkafka*")
    )
    if not found:
        sys.exit("the confluent-kafka package has no librdkafka: run make setup on Linux")
    return str(found[0])


def script_output(script: str, folder: Path) -> str:
    """Run a script of the project that prepares a folder; return its output."""
    command = [sys.executable, str(ROOT / "scripts" / script), str(folder)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        sys.exit(1)  # the script has printed the reason
    return made.stdout.strip()


def run_json(command: list[Any]) -> dict[str, Any]:
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def machine_cpu_s() -> float:
    user, nice, system, _idle, _wait, irq, soft, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + soft) * TICK_S


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_rss_mb(pid: int) -> float:
    """Return the peak memory since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return rss_mb(pid)


def forget_peak(pid: int) -> None:
    """Reset the peak memory; without permission it stays the peak since the process started."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text(FORGET_PEAK)


class Meter:
    """Measures the brokers' CPU and peak memory since its creation, and the load of other
    processes.

    Brokers may be killed and started meanwhile. A broker that has ended does not count in the
    brokers' CPU and memory.
    """

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._before = {pid: cpu_s(pid) for pid in pids()}
        for pid in self._before:
            forget_peak(pid)
        self._machine = machine_cpu_s()
        self._own = own_cpu_s()
        self._began = time.monotonic()

    def read(self) -> dict[str, float]:
        """Return the figures; `foreign_load` is the CPU that other processes used, in cores."""
        wall = time.monotonic() - self._began
        machine, own = machine_cpu_s() - self._machine, own_cpu_s() - self._own
        now = {pid: cpu_s(pid) for pid in self._pids()}
        brokers = sum(used - self._before.get(pid, 0) for pid, used in now.items())
        # A child that ends adds its whole CPU time to its parent's: subtract the part before.
        own -= sum(used for pid, used in self._before.items() if pid not in now)
        return {
            "broker_cpu_s": brokers,
            "client_cpu_s": own,
            "foreign_load": max(machine - brokers - own, 0) / wall,
            "rss_mb": sum(map(peak_rss_mb, now)),
        }


def own_cpu_s() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    return sum(os.times()[:4])


def interpreter() -> str:
    """Return the version of Python, and whether its build is optimised with a profile."""
    flags = " ".join(
        str(sysconfig.get_config_var(name) or "") for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS")
    )
    debian = Path("/etc/debian_version").exists()
    return f"Python {sys.version.split()[0]} ({build(flags, sys.base_prefix, debian)})"


def build(flags: str, prefix: str, debian: bool) -> str:
    """Describe a build; Debian and Ubuntu optimise theirs but do not record it."""
    if "--enable-optimizations" in flags or "-fprofile-use" in flags:
        return "optimised build"
    if debian and prefix == "/usr":
        return "Debian's optimised build"
    return "unknown build; if it is not optimised, small requests take a third longer"


def allow_open_files(wanted: int) -> int:
    """Raise the limit of open files for this process and its brokers; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


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
