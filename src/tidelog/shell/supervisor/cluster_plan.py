"""The plan of a cluster on one machine: its brokers, their ports, settings and folders.

Invariant: `node.id`, `log.dirs`, `listeners`, `broker.rack`, the store and the internal listener
are set only here, so the brokers of one folder fit together. All other settings are Tidelog's
defaults for a cluster, overridden by the environment, overridden by `--set`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.shell.settings_sources import variable_to_name
from tidelog.shell.supervisor import data_folder, throwaway_tls
from tidelog.shell.supervisor.data_folder import WrongSetting

HOST = "localhost"
METRICS = "tidelog.metrics.listener"
REPLICATION_FACTOR, MIN_ISR = 3, 2
CHOSEN_HERE = (
    "node.id",
    "broker.id",
    "log.dir",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "tidelog.metadata.store",
    "tidelog.internal.listener",
)
"""Settings that differ by broker and can't be set for all."""
FILES = (
    "tidelog.metadata.store.password.file",
    "tidelog.metadata.store.ca.file",
    "tidelog.metadata.store.certificate.file",
    "tidelog.metadata.store.key.file",
    "tidelog.cluster.secret.file",
    "tidelog.metrics.credentials.file",
)
"""Settings that are paths of files."""


INTERNAL_PORTS = 100
"""On one of several machines, brokers use the ports above the clients' by this number, so that a
firewall can name them. `tidelog up` starts at most this many brokers."""


class Machine(NamedTuple):
    """One of several machines of a cluster: the address and rack of its brokers, and their ids."""

    host: str
    rack: str
    node_ids: tuple[int, ...]
    secret_file: str = ""
    """The file with the cluster's secret; empty: the metadata store contains it."""


class ClusterPlan(NamedTuple):
    """The brokers of a cluster and their settings."""

    data: str
    brokers: tuple[int, ...]
    port: int
    """The first broker's port; the others get the following ones. 0: free ports."""
    sets: tuple[str, ...] = ()
    """`key=value` for all brokers."""
    racks: tuple[str, ...] = ()
    """Racks, assigned to the brokers in turn; empty: no racks."""
    one_process: bool = False
    store: str = ""
    """The URL of the metadata store; empty: that of the data folder."""
    machine: Machine | None = None
    """None: the whole cluster is on this machine."""
    disks: tuple[str, ...] = ()
    """Folders on further disks: a broker has a log directory in each."""
    tls: bool = False
    """Whether clients use TLS, with the certificates of the data folder."""

    @property
    def host(self) -> str:
        """The host of all brokers of this plan."""
        return HOST if self.machine is None else self.machine.host

    def defaults(self) -> dict[str, str]:
        """The defaults of these brokers' settings."""
        alone = self.machine is None
        return defaults(len(self.brokers) if alone else REPLICATION_FACTOR)

    @property
    def store_url(self) -> str:
        """The URL of the metadata store."""
        return self.store or data_folder.store_url(self.data)

    def port_of(self, broker: int) -> int:
        """The port of a broker; 0: a free one."""
        return self.port + self.brokers.index(broker) if self.port else 0

    def internal_port_of(self, broker: int) -> int:
        """The port for other brokers; 0: a free one."""
        return self.port_of(broker) + INTERNAL_PORTS if self.port and self.machine else 0

    def log_of(self, broker: int) -> str:
        """The path of the broker's log file."""
        return data_folder.log_file(self.data, None if self.one_process else broker)

    def own_settings(self, broker: int, port: int) -> list[str]:
        """The settings of this broker only; they override those for all."""
        clients = join_address(self.host, port)
        peers = self.host if self.machine else "127.0.0.1"
        protocol = "SSL" if self.tls else "PLAINTEXT"
        own = [
            f"node.id={broker}",
            f"log.dirs={','.join(data_folder.log_dirs(self.data, broker, self.disks))}",
            f"listeners={protocol}://{clients}",
            f"tidelog.metadata.store={self.store_url}",
            f"tidelog.internal.listener={join_address(peers, self.internal_port_of(broker))}",
        ]
        if port:  # the broker itself finds a free port
            own.append(f"advertised.listeners={protocol}://{clients}")
        if self.tls:
            own += throwaway_tls.broker_settings(self.data)
        own += self._metrics_of(broker)
        if self.machine:
            own.append(f"broker.rack={self.machine.rack}")
            if self.machine.secret_file:
                own.append(f"tidelog.cluster.secret.file={self.machine.secret_file}")
        elif self.racks:
            own.append(f"broker.rack={self.racks[(broker - 1) % len(self.racks)]}")
        return own

    def _metrics_of(self, broker: int) -> list[str]:
        """The metrics listener; a port set for all is the first broker's, the others follow."""
        asked = [text.partition("=")[2] for text in self.sets if text.startswith(f"{METRICS}=")]
        host, colon, port = asked[-1].rpartition(":") if asked else ("", "", "")
        if not colon or not port.isdecimal() or int(port) == 0:
            return []
        return [f"{METRICS}={host}:{int(port) + self.brokers.index(broker)}"]


def join_address(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def defaults(brokers: int) -> dict[str, str]:
    """The defaults of a cluster: an acknowledged record survives the loss of any one broker.

    Topics have one partition, as in Kafka: a topic that is created by its first record then has
    one order, as new users expect.

    Groups do not wait for more members, as with Kafka's own server.properties. A first consumer
    then reads within half a second. The price: members that start together rebalance more than
    once, and librdkafka's tests 0102 and 0113, which count rebalances, need Kafka's 3000.
    """
    return {
        "default.replication.factor": str(min(REPLICATION_FACTOR, brokers)),
        "min.insync.replicas": str(min(MIN_ISR, brokers)),
        "auto.create.topics.enable": "true",
        "num.partitions": "1",
        METRICS: "127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": str(min(REPLICATION_FACTOR, brokers)),
        "transaction.state.log.replication.factor": str(min(REPLICATION_FACTOR, brokers)),
        "transaction.state.log.min.isr": str(min(MIN_ISR, brokers)),
    }


def check_sets(sets: Iterable[str]) -> None:
    """Raise WrongSetting for a setting that can't be the same for all brokers."""
    for text in sets:
        name = text.partition("=")[0].strip()
        if name in CHOSEN_HERE:
            raise WrongSetting(
                f"--set {name} can't be set for all brokers: tidelog up chooses it for each;"
                " use --port, --data and --store, or tidelog broker"
            )


def without_own(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment without settings that are chosen here, and a warning for each of them."""
    kept, warnings = {}, []
    for variable, text in environ.items():
        name = variable_to_name(variable)
        if name in CHOSEN_HERE:
            warnings.append(f"{variable} is ignored: tidelog up chooses {name} for each broker")
        else:
            kept[variable] = text
    return kept, warnings


def with_absolute_paths(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with absolute paths of files: brokers may run in another folder."""
    return {
        variable: os.path.abspath(text) if text and variable_to_name(variable) in FILES else text
        for variable, text in environ.items()
    }


def absolute_set(text: str) -> str:
    """A `key=value` with an absolute path if its value is the path of a file."""
    name, equals, value = text.partition("=")
    if name.strip() not in FILES or not value.strip():
        return text
    return f"{name}{equals}{os.path.abspath(value.strip())}"


def absolute_store(url: str) -> str:
    """The URL of a metadata store, with an absolute path if it is a file."""
    scheme, _, path = url.partition(":")
    return f"{scheme}:{os.path.abspath(path)}" if scheme == "sqlite" and path else url


def broker_ids(wanted: int | None, there: Sequence[int]) -> tuple[int, ...]:
    """The brokers to start: the requested number, else those with data, else three."""
    count = wanted if wanted is not None else max(there, default=REPLICATION_FACTOR)
    return tuple(range(1, count + 1))
