"""What every bench needs of processes: to build and run them, and to see what they burn."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def built(source: str, folder: Path) -> Path:
    """The C program, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit(
            "the benches need a C compiler: install gcc (Debian: apt-get install gcc libc6-dev)"
        )
    program = folder / Path(source).stem
    subprocess.run([compiler, "-O2", "-o", program, HERE / source, "-ldl", "-lpthread"], check=True)
    return program


def library() -> str:
    """The librdkafka inside the confluent-kafka wheel."""
    import confluent_kafka

    found = sorted(
        (Path(confluent_kafka.__file__).parent.parent).glob("confluent_kafka.libs/librdkafka*")
    )
    if not found:
        sys.exit("no librdkafka beside confluent-kafka: run make setup on Linux")
    return str(found[0])


def script_says(script: str, folder: Path) -> str:
    """What a script of the project prints once it has made a folder ready."""
    command = [sys.executable, str(ROOT / "scripts" / script), str(folder)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        sys.exit(1)  # it has said why
    return made.stdout.strip()


def run_json(command: list[Any]) -> dict[str, Any]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[2]}: {done.stderr}")
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
