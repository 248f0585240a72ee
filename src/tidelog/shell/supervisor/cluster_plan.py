"""What a cluster on one machine is to be: its brokers, their ports, settings and folders.

Always true: `node.id`, `log.dirs`, `listeners`, `broker.rack`, the store and the internal
listener are chosen here and nowhere else, so brokers of one folder fit together. All other
settings are Tidelog's defaults for a cluster, then the environment's, then `--set`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.shell.settings_sources import variable_to_name
from tidelog.shell.supervisor import data_folder
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
    "tidelog.metadata.store",
    "tidelog.internal.listener",
)
"""Different for each broker, so nobody can set them for all."""


class ClusterPlan(NamedTuple):
    """A cluster before it is started."""

    data: str
    brokers: tuple[int, ...]
    port: int
    """The first broker's; the others follow. 0: each takes a free one."""
    sets: tuple[str, ...] = ()
    """`key=value` for all brokers."""
    racks: tuple[str, ...] = ()
    """The brokers' racks in turn; none: no racks."""
    one_process: bool = False

    def port_of(self, broker: int) -> int:
        """What a broker is to listen on; 0: a free port."""
        return self.port + self.brokers.index(broker) if self.port else 0

    def log_of(self, broker: int) -> str:
        """The file with what this broker has to say."""
        return data_folder.log_file(self.data, None if self.one_process else broker)

    def own_settings(self, broker: int, port: int) -> list[str]:
        """What only this broker has; they go behind all that was set for all."""
        store = os.path.join(self.data, data_folder.STORE)
        own = [
            f"node.id={broker}",
            f"log.dirs={data_folder.log_dir(self.data, broker)}",
            f"listeners=PLAINTEXT://{HOST}:{port}",
            f"tidelog.metadata.store=sqlite:{store}",
            "tidelog.internal.listener=127.0.0.1:0",
        ]
        if port:  # a free one is not known yet: then the broker finds out by itself
            own.append(f"advertised.listeners=PLAINTEXT://{HOST}:{port}")
        own += self._metrics_of(broker)
        if self.racks:
            own.append(f"broker.rack={self.racks[(broker - 1) % len(self.racks)]}")
        return own

    def _metrics_of(self, broker: int) -> list[str]:
        """A port for metrics that was set for all is the first one's; the others follow."""
        asked = [text.partition("=")[2] for text in self.sets if text.startswith(f"{METRICS}=")]
        host, colon, port = asked[-1].rpartition(":") if asked else ("", "", "")
        if not colon or not port.isdecimal() or int(port) == 0:
            return []
        return [f"{METRICS}={host}:{int(port) + self.brokers.index(broker)}"]


def defaults(brokers: int) -> dict[str, str]:
    """What makes the promise true: an acknowledged record outlives any one broker.

    One partition, as Kafka: a topic that comes into being by its first record then has one
    order, which is what somebody who just tries it expects.

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
    }


def check_sets(sets: Iterable[str]) -> None:
    """Raise WrongSetting for what can't be the same for all brokers."""
    for text in sets:
        name = text.partition("=")[0].strip()
        if name in CHOSEN_HERE:
            raise WrongSetting(
                f"--set {name} can't be set for all brokers: tidelog up chooses it for each;"
                " use --port and --data, or tidelog broker"
            )


def without_own(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment without what is chosen here, and a warning for each that was there."""
    kept, warnings = {}, []
    for variable, text in environ.items():
        name = variable_to_name(variable)
        if name in CHOSEN_HERE:
            warnings.append(f"{variable} is not heeded: tidelog up chooses {name} for each broker")
        else:
            kept[variable] = text
    return kept, warnings


def broker_ids(wanted: int | None, there: Sequence[int]) -> tuple[int, ...]:
    """The brokers to start: as many as asked for, else those that have data, else three."""
    count = wanted if wanted is not None else max(there, default=REPLICATION_FACTOR)
    return tuple(range(1, count + 1))
