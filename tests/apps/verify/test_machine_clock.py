"""The wall clock of a machine, which is set while processes read it."""

import subprocess
import sys
import time
from pathlib import Path

from tidelog.apps.verify.machines.machine_clock import set_clock

READER = """
import sys, time
from tidelog.apps.verify.machines.machine_clock import use_clock

use_clock(sys.argv[1])
for _ in sys.stdin:
    before = time.monotonic()
    time.sleep(0.01)
    print(time.time_ns(), time.time(), time.monotonic() - before, flush=True)
"""
A_MINUTE_S = 60
"""More than a busy computer delays a reading."""


def test_running_processes_see_the_new_time_and_can_sleep(tmp_path: Path) -> None:
    path = str(tmp_path / "clock")
    set_clock(path, 0)
    with subprocess.Popen(
        [sys.executable, "-c", READER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset_s in (0, 600, -600, 0):
            set_clock(path, offset_s)
            process.stdin.write("\n")
            process.stdin.flush()
            now_ns, now_s, slept_s = map(float, process.stdout.readline().split())
            assert abs(now_ns / 1e9 - time.time() - offset_s) < A_MINUTE_S
            assert abs(now_s - time.time() - offset_s) < A_MINUTE_S
            assert 0.01 <= slept_s < A_MINUTE_S
