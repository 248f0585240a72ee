"""Errors about groups, as the command line says them; names of groups for the shell."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.remote.bootstrap import asked_cluster
from tidelog.apps.near_names import nearest

if TYPE_CHECKING:
    from tidelog.shell.client.cluster import Cluster


@contextmanager
def asked_groups(bootstrap: str | None, timeout_s: float) -> Iterator["Cluster"]:
    """The cluster; a group that is not there is refused with the near ones."""
    from tidelog.shell.client.groups.group_admin import NoSuchGroup, list_groups

    with asked_cluster(bootstrap, timeout_s) as cluster:
        try:
            yield cluster
        except NoSuchGroup as error:
            known, _ = list_groups(cluster)
            meant = nearest(error.group, [each.group for each in known])
            text = f"there is no group {error.group!r}; {meant}" if meant else str(error)
            raise click.ClickException(text) from error
