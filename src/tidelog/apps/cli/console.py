"""`tidelog console`: serve the web console until Ctrl-C."""

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.connection import (
    DATA,
    VARIABLE,
    client_security,
    command_config_option,
    find_bootstrap,
)
from tidelog.apps.cli.usage import examples
from tidelog.apps.install_advice import CONSOLE, console_installed

if TYPE_CHECKING:
    from tidelog.apps.console.target import Target

PORT = 8080
REFUSED = 1


@click.command(
    epilog=examples(
        "tidelog console",
        "tidelog console --data my-data --allow-actions",
        "tidelog console -b broker1:9092 --port 8081",
        "tidelog console --host 0.0.0.0 --token-file console-token",
        "tidelog console --history tidelog-demo/report-history.jsonl",
        "tidelog console --avro-schema orders=orders.avsc",
    )
)
@click.option(
    "--data",
    metavar="DIR",
    help=f"Data folder of a cluster on this machine, running or not.  [default: ./{DATA}, if it"
    " exists]",
)
@click.option(
    "--bootstrap",
    "--bootstrap-server",
    "-b",
    metavar="HOST:PORT",
    help="Bootstrap brokers of any cluster, separated by commas; not with --data.  [default:"
    f" {VARIABLE}]",
)
@command_config_option()
@click.option(
    "--host",
    default="localhost",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. If other machines can reach it, a token is required and printed.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Require the token in FILE, which is created if it is missing.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Allow pages to create topics, produce records, elect leaders, reassign replicas, reset"
    " offsets and abort transactions; with --data also to kill, pause and start brokers.",
)
@click.option(
    "--history-size",
    "history_mib",
    type=click.IntRange(0, 1_000_000),
    default=256,
    show_default=True,
    metavar="MIB",
    help="Largest size of the history in MiB; 0 stores no history. The file is in the data folder,"
    " or for a remote cluster in ~/.local/state/tidelog/console.",
)
@click.option(
    "--history",
    "history_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Show a file of history events instead of a cluster: of `tidelog demo`, or of"
    " --history of `tidelog sim replay`, `story play`, `model check` or `verify`.",
)
@click.option(
    "--avro-schema",
    "avro_schemas",
    multiple=True,
    metavar="TOPIC=FILE",
    help="Decode the values of TOPIC with the Avro schema in FILE; several are allowed. Needs"
    " fastavro.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def console(
    data: str | None,
    bootstrap: str | None,
    host: str,
    port: int,
    token_file: str | None,
    allow_actions: bool,
    history_mib: int,
    history_file: str | None,
    avro_schemas: tuple[str, ...],
    open_browser: bool,
) -> int:
    """Serve the web console: live state of a cluster in a browser, until Ctrl-C.

    Listens on this machine only, unless --host is given.
    """
    if not console_installed():
        click.echo(f"tidelog: the console needs more packages: {CONSOLE}", err=True)
        return REFUSED
    if data is not None and bootstrap is not None:
        raise click.UsageError("--data and --bootstrap can't be combined")
    if history_file is not None and (data is not None or bootstrap is not None or allow_actions):
        raise click.UsageError(
            "--history shows a file; it can't be combined with --data, --bootstrap or"
            " --allow-actions"
        )
    from tidelog.apps.console.avro_values import BadSchema, read_schemas
    from tidelog.apps.console.history.event_file import CannotRead, EventFile
    from tidelog.apps.console.history.file_collector import FileTarget
    from tidelog.apps.console.history.place import recorder_for
    from tidelog.apps.console.listener import bind
    from tidelog.apps.console.security import TokenUnusable, is_loopback, read_token
    from tidelog.apps.console.server import Console, Options
    from tidelog.apps.pipeline.decoding.avro import NoFastavro

    try:
        avro = read_schemas(avro_schemas)
        file = None if history_file is None else EventFile.open(history_file)
        target = FileTarget() if file is not None else _target(data, bootstrap)
        token = None
        # Without a token, every user of this machine could act with the credentials.
        security = target.security()
        lends = security is not None and security.has_credentials
        if token_file is not None or not is_loopback(host) or lends:
            token = read_token(token_file)
        listener = bind(host, port)
    except (BadSchema, CannotRead, NoFastavro, TokenUnusable) as error:
        click.echo(f"tidelog: {error}", err=True)
        return REFUSED
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        why = error.strerror or str(error)
        click.echo(
            f"tidelog: can't listen on {host}:{port}: {why}; choose another --port", err=True
        )
        return REFUSED
    recorder = None if file is not None else recorder_for(target.data, history_mib << 20)
    options = Options(target, listener, host, token, allow_actions, recorder, file, avro=avro)
    served = Console(options)
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, _interrupt)
        click.echo(f"Tidelog console: {served.url()}")
        sys.stdout.flush()
        if open_browser:
            import webbrowser

            threading.Timer(0.5, webbrowser.open, [served.url()]).start()
        served.run()
    return 0


def _interrupt(*_: object) -> None:
    """End the console: before uvicorn handles signals, and after it, when it sends them again."""
    raise KeyboardInterrupt


def _target(data: str | None, bootstrap: str | None) -> "Target":
    """Return the cluster to show. Raises ValueError."""
    from tidelog.apps.console.target import FolderCluster, RemoteCluster
    from tidelog.shell.client.cluster import Cluster

    if data is None and not bootstrap and not os.environ.get(VARIABLE) and os.path.isdir(DATA):
        data = DATA
    if data is not None:
        if not os.path.isdir(data):
            raise ValueError(f"folder {data} does not exist; name the cluster's folder with --data")
        return FolderCluster(os.path.abspath(data), client_security(bootstrap))
    addresses = find_bootstrap(bootstrap)
    Cluster(addresses)  # checks the form of the addresses, without a connection
    return RemoteCluster(addresses, client_security(bootstrap))
