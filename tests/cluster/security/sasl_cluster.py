"""A real cluster of three brokers with SASL, and the settings of its clients."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from broker_process import STOP_S, listening_event
from certificates import authority, certificate
from real_cluster import LONG_SESSIONS, eventually

from tidelog.core.sasl.mechanism import PASSWORD_MECHANISMS, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.settings.jaas import PLAIN_MODULE, SCRAM_MODULE, module_of
from tidelog.core.storage import layout
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.security import read_security

PATIENCE_S = 120
ANSWER_S, COMMAND_S = 100, 300
HOST = "127.0.0.1"
USER, PASSWORD = "alice", "pass of, alice="
ADMIN_PASSWORD, BROKER_PASSWORD = "pass-of-admin", "pass-of-brokers"
SECRETS = (PASSWORD, ADMIN_PASSWORD, BROKER_PASSWORD)
SCRAM = (SCRAM_SHA_256, SCRAM_SHA_512)
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
PLAIN_USERS = f'{PLAIN_MODULE} required user_admin="{ADMIN_PASSWORD}" user_{USER}="{PASSWORD}";'
BROKERS = f'{SCRAM_MODULE} required username="broker" password="{BROKER_PASSWORD}";'


class SaslCluster:
    """Three brokers of one folder, which authenticate to each other by SCRAM over TLS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority(folder)
        self.store = certificate(folder, "broker", "/O=broker")
        self._stack = ExitStack()
        self.logs = [folder / f"{broker}.txt" for broker in (1, 2, 3)]
        self.processes = [self._start(broker) for broker in (1, 2, 3)]
        self.addresses = [
            eventually(partial(client_addresses, log), "it listens", PATIENCE_S)
            for log in self.logs
        ]

    def _start(self, broker: int) -> "subprocess.Popen[bytes]":
        names = [f"listener.name.{name.lower()}" for name in PROTOCOLS]
        sets = {
            "node.id": broker,
            "listeners": ",".join(f"{name}://{HOST}:0" for name in (*PROTOCOLS, "BROKERS")),
            "inter.broker.listener.name": "BROKERS",
            "listener.security.protocol.map": "BROKERS:SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(PASSWORD_MECHANISMS),
            "listener.name.brokers.sasl.enabled.mechanisms": SCRAM_SHA_512,
            "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_512,
            "listener.name.brokers.scram-sha-512.sasl.jaas.config": BROKERS,
            **{f"{name}.plain.sasl.jaas.config": PLAIN_USERS for name in names},
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.folder / "ca.pem",
            "min.insync.replicas": 2,
            "group.initial.rebalance.delay.ms": 0,
            "tidelog.log.format": "json",
            **LONG_SESSIONS,
        }
        path = self.folder / f"{broker}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in sets.items()))
        data = ("--data", str(self.folder / "data"))
        logs = self.folder / "data" / f"broker-{broker}"
        logs.mkdir(parents=True, mode=0o700)
        (logs / layout.LOSSES).write_text(json.dumps({"broker": broker, "id": "earlier"}) + "\n")
        command = [sys.executable, "-m", "tidelog", "broker", *data, "--config", str(path)]
        with self.logs[broker - 1].open("wb") as file:
            process = subprocess.Popen(command, stderr=file, env=dict(os.environ))
        self._stack.callback(process.wait, STOP_S)
        self._stack.callback(process.terminate)
        return process

    def bootstrap(self, protocol: str = PROTOCOLS[0]) -> str:
        return ",".join(each[protocol] for each in self.addresses)

    def texts(
        self,
        mechanism: str = PLAIN,
        user: str = "admin",
        password: str = ADMIN_PASSWORD,
        protocol: str = PROTOCOLS[0],
    ) -> dict[str, str]:
        """The settings of a client, for Tidelog's and Kafka's tools."""
        return {
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{module_of(mechanism)} required"
            f' username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
        }

    def properties(self, **chosen: str) -> str:
        """Write the file for `--command-config`."""
        path = self.folder / "client.properties"
        texts = self.texts(**chosen)
        path.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
        return str(path)

    def tidelog(self, *words: str, stdin: str = "", **chosen: str) -> Any:
        protocol = chosen.get("protocol", PROTOCOLS[0])
        config = ("-b", self.bootstrap(protocol), "--command-config", self.properties(**chosen))
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *words, *config, "--timeout", str(ANSWER_S)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def librdkafka(self, mechanism: str, protocol: str, password: str) -> dict[str, Any]:
        return {
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "ssl.ca.location": str(self.folder / "ca.pem"),
        }

    def logged(self) -> str:
        return "".join(log.read_text() for log in self.logs)

    def create_users(self) -> None:
        """Create the user of SCRAM, with both mechanisms."""

        def created() -> bool:
            words = ("user", "create", USER, "--password-stdin", "--mechanism")
            done = [self.tidelog(*words, each, stdin=PASSWORD) for each in SCRAM]
            return all(one.returncode == 0 for one in done)

        def known() -> bool:
            """Log in at each broker, which fails until the broker has the user."""
            for mechanism in SCRAM:
                security = read_security(self.texts(mechanism, USER, PASSWORD))
                for each in self.addresses:
                    host, _, port = each[PROTOCOLS[0]].rpartition(":")
                    KafkaConnection(
                        host, int(port), timeout_s=PATIENCE_S, security=security
                    ).close()
            return True

        eventually(created, "the users are created", PATIENCE_S)
        eventually(known, "all brokers know the users", PATIENCE_S)

    def close(self) -> None:
        self._stack.close()


def client_addresses(log: Path) -> dict[str, str] | None:
    """The addresses of a broker by listener, once it listens."""
    event = listening_event(log)
    return event and dict(str(address).split("://") for address in event["listeners"])
