"""Three real Apache Kafka brokers on this machine, in KRaft mode, from Maven's jars.

They use Kafka's defaults, and the JVM flags of Kafka's own start script. Kafka's internal topics
have three replicas, like Tidelog's.

Invariant: brokers keep their ports over restarts; after `close` no process and no folder is left.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from processes import ROOT, script_output

JARS = ROOT / "build" / "kafka"
HEAP = ("-Xms1G", "-Xmx1G")
FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
CLUSTER_ID = "dGlkZWxvZy1iZW5jaC1rYQ"
JAVA_AT_LEAST = 17
_formatted: dict[int, dict[str, bytes]] = {}
NEEDS_JAVA = "Kafka needs Java 17 or newer: install openjdk-17-jre-headless (Debian, Ubuntu)"


def class_path() -> str:
    """Return the class path of Kafka's jars; download missing jars first."""
    return script_output("fetch_kafka.py", JARS)


def java() -> str:
    found = shutil.which("java")
    if found is None:
        sys.exit(NEEDS_JAVA)
    return found


def java_version() -> str:
    """Return the version of Java; exit with one line if Java is missing or too old for Kafka."""
    printed = subprocess.run([java(), "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)[^"]*"', printed)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        line = printed.splitlines()[0] if printed else "no version"
        sys.exit(f"{NEEDS_JAVA}; found: {line}")
    return f"Java {found[1]}"


def release() -> str:
    """Return the release of the listed jars, such as "Apache Kafka 4.3.1"."""
    lines = (ROOT / "scripts" / "kafka_jars.txt").read_text().splitlines()
    [version] = {words[2] for words in map(str.split, lines) if words[1:2] == ["kafka-clients"]}
    return f"Apache Kafka {version}"


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class KafkaCluster:
    """Brokers 1 to 3, each of which is also a controller."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.ids = [1, 2, 3]
        self._class_path = class_path()
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-bench-"))
        ports = free_ports(2 * len(self.ids))
        self._ports = dict(zip(self.ids, ports, strict=False))
        self._controllers = dict(zip(self.ids, ports[len(self.ids) :], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for broker in self.ids:
                self._write_settings(broker, settings or {})
            self._format()
        except BaseException:
            self.close()
            raise

    def _write_settings(self, broker: int, settings: Mapping[str, str]) -> None:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._controllers.items())
        wanted = {
            "process.roles": "broker,controller",
            "node.id": str(broker),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[broker]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[broker]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.log_dir(broker)),
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "auto.create.topics.enable": "false",
            **settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in wanted.items())
        self._settings_file(broker).write_text(text)

    def _format(self) -> None:
        """Format the folders with Kafka's own tool once; later clusters reuse the files."""
        if not _formatted:
            self._run_format()
            for broker in self.ids:
                made = self.log_dir(broker)
                files = (path for path in made.rglob("*") if path.is_file())
                _formatted[broker] = {str(f.relative_to(made)): f.read_bytes() for f in files}
            return
        for broker in self.ids:
            for name, content in _formatted[broker].items():
                path = self.log_dir(broker) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def _run_format(self) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]
        started = [
            subprocess.Popen(
                [java(), "-Xmx256m", "-cp", self._class_path, *tool, self._settings_file(broker)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for broker in self.ids
        ]
        for process in started:
            _, errors = process.communicate(timeout=120)
            if process.returncode:
                sys.exit(f"Kafka's folders can't be formatted: {errors.decode()[-500:]}")

    def _settings_file(self, broker: int) -> Path:
        return self._folder / f"server-{broker}.properties"

    def log_dir(self, broker: int) -> Path:
        return self._folder / f"data-{broker}"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def port(self, broker: int) -> int:
        return self._ports[broker]

    def pid(self, broker: int) -> int:
        return self._processes[broker].pid

    def is_running(self, broker: int) -> bool:
        return broker in self._processes and self._processes[broker].poll() is None

    def start_broker(self, broker: int) -> None:
        command = [java(), *HEAP, *FLAGS, "-cp", self._class_path, "kafka.Kafka"]
        with (self._folder / f"broker-{broker}.log").open("ab") as log:
            self._processes[broker] = subprocess.Popen(
                [*command, str(self._settings_file(broker))], stdout=log, stderr=log
            )

    def kill(self, broker: int) -> None:
        self._processes[broker].kill()
        self._processes[broker].wait()

    def stop(self, broker: int, timeout_s: float) -> None:
        """Stop the broker cleanly."""
        self._processes[broker].terminate()
        self._processes[broker].wait(timeout_s)

    def pause(self, broker: int) -> None:
        os.kill(self.pid(broker), signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.pid(broker), signal.SIGCONT)

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
