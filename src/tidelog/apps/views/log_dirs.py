"""What `tidelog log-dir list` shows: the log directories of brokers, and what is in them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.core.types import BrokerId
from tidelog.shell.client.administration.log_dirs import LogDir, describe_log_dirs
from tidelog.shell.client.client_errors import ClientError, error_name
from tidelog.shell.client.cluster import Cluster


class LogDirsView(NamedTuple):
    """The log directories of the brokers that responded."""

    log_dirs: list[LogDir]
    unreachable: dict[BrokerId, str]
    """Why a broker did not respond."""

    @property
    def failed(self) -> list[LogDir]:
        return [each for each in self.log_dirs if each.error]

    @property
    def holds(self) -> bool:
        """Whether every broker responded and no directory has failed."""
        return not self.failed and not self.unreachable

    def as_data(self) -> dict[str, Any]:
        return {
            "log_dirs": [_as_data(each) for each in self.log_dirs],
            "unreachable": [
                {"broker": broker, "error": why} for broker, why in self.unreachable.items()
            ],
        }


def _as_data(found: LogDir) -> dict[str, Any]:
    return {
        **found._asdict(),
        "error": error_name(found.error) if found.error else None,
        "replicas": [
            {
                "topic": each.key.topic,
                "partition": each.key.partition,
                "size": each.size,
                "offset_lag": each.offset_lag,
                "is_copy": each.is_copy,
            }
            for each in found.replicas
        ],
    }


def view_log_dirs(cluster: Cluster, brokers: Iterable[BrokerId]) -> LogDirsView:
    """Ask each broker for its log directories."""
    view = LogDirsView([], {})
    for broker in brokers:
        try:
            view.log_dirs.extend(describe_log_dirs(cluster, broker))
        except ClientError as error:
            view.unreachable[broker] = str(error)
    return view
