"""Names that the shell completes: topics and brokers of the cluster, asked while one types.

Always true: an answer is there within a third of a second or not at all, and whatever goes
wrong is no names, never an error.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.remote.bootstrap import find_bootstrap

if TYPE_CHECKING:
    from tidelog.shell.client.cluster_metadata import ClusterMetadata

PATIENCE_S = 0.3


def complete_topic(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin so; internal ones only where an underscore was typed."""

    def names(metadata: "ClusterMetadata") -> list[str]:
        return [
            name
            for name, topic in metadata.topics.items()
            if not topic.internal or incomplete.startswith("_")
        ]

    return _begin_so(ctx, names, incomplete)


def complete_broker(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of brokers that begin so."""
    return _begin_so(ctx, lambda metadata: [str(each) for each in metadata.brokers], incomplete)


def _begin_so(
    ctx: click.Context, names: "Callable[[ClusterMetadata], list[str]]", incomplete: str
) -> list[str]:
    metadata = _ask(ctx.params.get("bootstrap"))
    found = [] if metadata is None else sorted(names(metadata))
    return [name for name in found if name.startswith(incomplete)]


def _ask(bootstrap: str | None) -> "ClusterMetadata | None":
    """The metadata, if it is here in time. A thread asks, so that no name service or broker
    can hold up the one who types."""
    from threading import Thread

    from tidelog.shell.client.client_errors import ClientError
    from tidelog.shell.client.cluster import Cluster

    found: list[ClusterMetadata] = []

    def ask() -> None:
        try:
            with Cluster(find_bootstrap(bootstrap), timeout_s=PATIENCE_S) as cluster:
                found.append(cluster.refresh())
        except (ClientError, ValueError, OSError):
            return

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return found[0] if found else None
