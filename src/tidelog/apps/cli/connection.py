"""Connect a command to a cluster, and complete names from it.

The bootstrap address is the first of: `--bootstrap`, `KAFKA_BOOTSTRAP_SERVERS`, the cluster that
`tidelog up` runs from the data folder in the current directory, localhost:9092 to 9094. These are
the ports of `tidelog up`; all three, because the first broker may be down.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from tidelog.apps.cli.usage import F, format_option
from tidelog.apps.near_names import nearest

if TYPE_CHECKING:
    from tidelog.shell.client.client_errors import NoSuchTopic
    from tidelog.shell.client.cluster import Cluster
    from tidelog.shell.client.security import ClientSecurity
    from tidelog.shell.supervisor.up_file import UpFile

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
CONFIG_VARIABLE = "TIDELOG_COMMAND_CONFIG"
DATA = "tidelog-data"
LAST_RESORT = "localhost:9092,localhost:9093,localhost:9094"
TIMEOUT_S = 5.0
WAIT_MAX_S = 1_000_000.0
"""More than ten days, and within the limits of every system's timers."""
_SECURITY = f"{__name__}.security"
NOT_ANSWERED = 1
COMPLETION_TIMEOUT_S = 0.3
"""How long completion waits for the cluster; then it suggests nothing."""


def bootstrap_option() -> Callable[[F], F]:
    """Return `--bootstrap`, also under its names in Kafka's tools and kcat."""
    return click.option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        help=f"Bootstrap brokers, separated by commas.  [default: {VARIABLE}, else the"
        f" cluster of ./{DATA}, else localhost:9092 to 9094]",
    )


def command_config_option() -> Callable[[F], F]:
    """Return `--command-config`, which `connected_cluster` applies."""
    return click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        expose_value=False,
        callback=_read_security,
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        help="Properties file with security.protocol, ssl.* and sasl.* settings, as for Kafka's"
        " tools.",
    )


def _read_security(context: click.Context, _option: click.Parameter, path: str | None) -> None:
    """Read the file of `--command-config`, for `client_security`."""
    if path is not None:
        context.meta[_SECURITY] = _security_of(path)


class _FileSecurity(NamedTuple):
    """The security settings in a file."""

    texts: "dict[str, str]"
    security: "ClientSecurity | None"


def _security_of(path: str) -> _FileSecurity:
    from tidelog.core.settings.setting import WrongValue
    from tidelog.shell.client.security import read_security, read_security_texts

    try:
        texts = read_security_texts(path)
        return _FileSecurity(texts, read_security(texts))
    except (OSError, UnicodeDecodeError, WrongValue) as error:
        raise click.BadParameter(f"{path}: {error}") from error


def client_security(bootstrap: str | None) -> "ClientSecurity | None":
    """Return the security settings of this command's connections; None: plaintext.

    They are those of `--command-config`, else those of the cluster of ./tidelog-data.
    """
    found = _file_security(click.get_current_context(), bootstrap)
    return None if found is None else found.security


def security_texts(bootstrap: str | None) -> dict[str, str]:
    """Return the texts of the settings of `client_security`, for other processes; paths of files
    are absolute."""
    found = _file_security(click.get_current_context(), bootstrap)
    texts = {} if found is None else found.texts
    return {
        name: os.path.abspath(text) if name.endswith(".location") else text
        for name, text in texts.items()
    }


def _file_security(context: click.Context, bootstrap: str | None) -> _FileSecurity | None:
    from tidelog.shell.supervisor import throwaway_tls

    meta = context.meta
    if _SECURITY not in meta and throwaway_tls.is_made(DATA) and _running_here(bootstrap):
        meta[_SECURITY] = _security_of(throwaway_tls.path(DATA, throwaway_tls.CLIENT))
    found: _FileSecurity | None = meta.get(_SECURITY)
    return found


def timeout_option() -> Callable[[F], F]:
    """Return `--timeout`: how long to wait for a response."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.1, WAIT_MAX_S),
        default=TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a response of a broker.",
    )


def moves_wait_option() -> Callable[[F], F]:
    """Return `--wait` of commands that move replicas."""
    return click.option(
        "--wait",
        "wait_s",
        type=click.FloatRange(0.1, WAIT_MAX_S),
        default=WAIT_MAX_S,
        metavar="SECONDS",
        help="Wait for SECONDS at most; moves that have started continue.  [default: no limit]",
    )


def cluster_options(*forms: str) -> Callable[[F], F]:
    """Add `--bootstrap`, `--command-config`, `--timeout` and `--format` (text, json, and more)."""

    def add(command: F) -> F:
        with_config = command_config_option()(timeout_option()(format_option(*forms)(command)))
        return bootstrap_option()(with_config)

    return add


def find_bootstrap(given: str | None) -> str:
    """Return the bootstrap addresses."""
    if given or os.environ.get(VARIABLE):
        return given or os.environ[VARIABLE]
    running = _running_here(given)
    return LAST_RESORT if running is None else running.bootstrap


def _running_here(given: str | None) -> "UpFile | None":
    """Return the cluster of ./tidelog-data if it runs and no other cluster is named."""
    if given or os.environ.get(VARIABLE):
        return None
    from tidelog.shell.supervisor import up_file

    running = up_file.read(DATA)
    return running if running is not None and running.alive() else None


@contextmanager
def connected_cluster(
    given: str | None, timeout_s: float, no_topic: str = ""
) -> Iterator["Cluster"]:
    """Connect to the cluster; print a ClientError as one line and exit with 1.

    `no_topic` is a hint for the message about a topic that does not exist.
    """
    from tidelog.shell.client.client_errors import ClientError, NoSuchTopic
    from tidelog.shell.client.cluster import Cluster

    context = click.get_current_context()
    try:
        bootstrap, security = find_bootstrap(given), client_security(given)
        with Cluster(bootstrap, timeout_s=timeout_s, security=security) as cluster:
            try:
                yield cluster
            except NoSuchTopic as error:
                raise click.ClickException(_with_near_names(cluster, error, no_topic)) from error
    except ValueError as error:
        raise click.UsageError(str(error), context) from error
    except ClientError as error:
        click.echo(f"tidelog: {error}", err=True)
        context.exit(NOT_ANSWERED)


def _with_near_names(cluster: "Cluster", error: "NoSuchTopic", no_topic: str) -> str:
    if error.topic is None:
        return str(error)
    meant = nearest(error.topic, cluster.refresh().topics)
    hint = " ".join(filter(None, (meant, no_topic)))
    return f"there is no {error.name} in the cluster; {hint}" if hint else str(error)


@contextmanager
def connected_to_groups(bootstrap: str | None, timeout_s: float) -> Iterator["Cluster"]:
    """Connect to the cluster; suggest names if a group does not exist."""
    from tidelog.shell.client.groups.group_admin import NoSuchGroup, list_groups

    with connected_cluster(bootstrap, timeout_s) as cluster:
        try:
            yield cluster
        except NoSuchGroup as error:
            known, _ = list_groups(cluster)
            meant = nearest(error.group, [each.group for each in known])
            text = f"there is no group {error.group!r}; {meant}" if meant else str(error)
            raise click.ClickException(text) from error


@contextmanager
def connected_to_transactions(bootstrap: str | None, timeout_s: float) -> Iterator["Cluster"]:
    """Connect to the cluster; suggest names if a transactional id does not exist."""
    from tidelog.shell.client.administration.transactions import (
        Filters,
        NoSuchTransaction,
        list_transactions,
    )

    with connected_cluster(bootstrap, timeout_s) as cluster:
        try:
            yield cluster
        except NoSuchTransaction as error:
            known, _ = list_transactions(cluster, Filters())
            meant = nearest(error.transactional_id, [each.transactional_id for each in known])
            text = f"there is no transactional id {error.transactional_id!r}; {meant}"
            raise click.ClickException(text if meant else str(error)) from error


# -- shell completion ------------------------------------------------------------------------


def complete_topic(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete topics; internal ones only after an underscore."""

    def names(cluster: "Cluster") -> list[str]:
        return [
            name
            for name, topic in cluster.refresh().topics.items()
            if not topic.internal or incomplete.startswith("_")
        ]

    return _matching(ctx, names, incomplete)


def complete_broker(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete broker ids."""
    return _matching(
        ctx, lambda cluster: [str(each) for each in cluster.refresh().brokers], incomplete
    )


def complete_group(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete groups."""

    def names(cluster: "Cluster") -> list[str]:
        from tidelog.shell.client.groups.group_admin import list_groups

        return [each.group for each in list_groups(cluster)[0]]

    return _matching(ctx, names, incomplete)


def complete_transaction(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete transactional ids."""

    def names(cluster: "Cluster") -> list[str]:
        from tidelog.shell.client.administration.transactions import Filters, list_transactions

        return [each.transactional_id for each in list_transactions(cluster, Filters())[0]]

    return _matching(ctx, names, incomplete)


def _matching(
    ctx: click.Context, names: "Callable[[Cluster], list[str]]", incomplete: str
) -> list[str]:
    """Return the names that start with `incomplete`; empty after a timeout or an error.

    A thread sends the request, so that a slow name service or broker can't block the shell.
    """
    from threading import Thread

    from tidelog.shell.client.client_errors import ClientError
    from tidelog.shell.client.cluster import Cluster
    from tidelog.shell.client.connection import CLIENT_ID

    found: list[str] = []

    def fetch() -> None:
        try:
            given = ctx.params.get("bootstrap")
            secured = _file_security(ctx, given)
            security = None if secured is None else secured.security
            bootstrap = find_bootstrap(given)
            with Cluster(bootstrap, CLIENT_ID, COMPLETION_TIMEOUT_S, security) as cluster:
                found.extend(sorted(names(cluster)))
        except (ClientError, ValueError, OSError, click.ClickException):
            return

    thread = Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(COMPLETION_TIMEOUT_S)
    return [name for name in found if name.startswith(incomplete)]
