"""Names that the shell completes: topics, brokers and groups, asked while one types.

Always true: an answer is there within a third of a second or not at all, and whatever goes
wrong is no names, never an error.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.remote.bootstrap import find_bootstrap

if TYPE_CHECKING:
    from tidelog.shell.client.cluster import Cluster

PATIENCE_S = 0.3


def complete_topic(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin so; internal ones only where an underscore was typed."""

    def names(cluster: "Cluster") -> list[str]:
        return [
            name
            for name, topic in cluster.refresh().topics.items()
            if not topic.internal or incomplete.startswith("_")
        ]

    return _begin_so(ctx, names, incomplete)


def complete_broker(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of brokers that begin so."""
    return _begin_so(
        ctx, lambda cluster: [str(each) for each in cluster.refresh().brokers], incomplete
    )


def complete_group(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Groups that begin so."""

    def names(cluster: "Cluster") -> list[str]:
        from tidelog.shell.client.groups.group_admin import list_groups

        return [each.group for each in list_groups(cluster)[0]]

    return _begin_so(ctx, names, incomplete)


def _begin_so(
    ctx: click.Context, names: "Callable[[Cluster], list[str]]", incomplete: str
) -> list[str]:
    """Those that begin so, if they are here in time. A thread asks, so that no name service or
    broker can hold up the one who types."""
    from threading import Thread

    from tidelog.shell.client.client_errors import ClientError
    from tidelog.shell.client.cluster import Cluster

    found: list[str] = []

    def ask() -> None:
        try:
            bootstrap = find_bootstrap(ctx.params.get("bootstrap"))
            with Cluster(bootstrap, timeout_s=PATIENCE_S) as cluster:
                found.extend(sorted(names(cluster)))
        except (ClientError, ValueError, OSError):
            return

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return [name for name in found if name.startswith(incomplete)]
