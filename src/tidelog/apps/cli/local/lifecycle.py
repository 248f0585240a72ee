"""`tidelog up`, `status` and `down`: start, show and stop a cluster on this machine.

`tidelog up` is a click command here; `launch.py` runs a plain command line without click. The work
is in `bring_up`, the options are in `up_options`.
"""

import os
import time
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.local import up_options
from tidelog.apps.cli.local.up_options import OPTIONS, Option
from tidelog.apps.cli.usage import examples, format_option, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.supervisor.cluster_control import BrokerState, ClusterState

DATA = "tidelog-data"

data_option = click.option(
    "--data", default=DATA, show_default=True, metavar="DIR", help="Data folder of the cluster."
)


def _click_option(option: Option) -> click.Option:
    extra: dict[str, Any] = {"default": option.default, "help": option.help}
    if option.kind == up_options.FLAG:
        extra["is_flag"] = True
    elif option.kind == up_options.NUMBER:
        extra["type"] = click.IntRange(*option.bounds)
    elif option.kind == up_options.SECONDS:
        extra["type"] = click.FloatRange(0, min_open=True)
    elif option.kind == up_options.CHOICE:
        extra["type"] = click.Choice(option.choices)
    elif option.kind == up_options.MANY:
        extra["multiple"] = True
    return click.Option(
        [option.written, option.field], metavar=option.metavar, show_default=option.shown, **extra
    )


def _up(**given: Any) -> int:
    """Start a cluster on this machine; by default three brokers on ports 9092 to 9094.

    Runs until Ctrl-C or `tidelog down`; exit code 0 means that all brokers stopped cleanly. With
    COMMAND, runs the command with KAFKA_BOOTSTRAP_SERVERS set, stops the cluster when it ends, and
    returns its exit code.
    """
    from tidelog.apps.cli.local.bring_up import bring_up

    options = up_options.UpOptions(**given)
    if (conflict := options.conflict()) is not None:
        raise usage_error(conflict)
    return bring_up(options, time.monotonic())


up = click.Command(
    "up",
    callback=_up,
    help=_up.__doc__,
    params=[
        *map(_click_option, OPTIONS),
        click.Argument(
            ["command"], nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]", default=()
        ),
    ],
    epilog=examples(
        "tidelog up",
        "tidelog up --ephemeral --port 0 --one-process",
        "tidelog up --detach --data my-data",
        "tidelog up --ephemeral --port 0 -- pytest tests",
        "tidelog up --brokers 1 --set log.retention.ms=60000",
    ),
)


@click.command(epilog=examples("tidelog status", "tidelog status --data my-data --format json"))
@data_option
@format_option()
def status(data: str, form: str) -> int:
    """Show the brokers of a cluster on this machine, and whether they respond.

    Includes brokers that `tidelog up` started, and brokers started by hand in the same folder.
    Exit code 0 means that all of them are up.
    """
    from tidelog.shell.supervisor.cluster_control import read_state

    state = read_state(os.path.abspath(data))
    return output.conclude(form, state.all_up, state.as_data(), lambda screen: _show(screen, state))


def _show(screen: "Console", cluster: "ClusterState") -> None:

    if cluster.brokers:
        columns = ("broker", "pid", "address", "state", "metrics")
        table = output.table(columns, numbers=("pid",))
        for broker in cluster.brokers:
            state = output.mark(broker.state == "up", "up", broker.state)
            name = f"{broker.id} (controller)" if broker.controller else str(broker.id)
            metrics = broker.metrics or "off"
            table.add_row(name, str(broker.pid), broker.address, state, metrics)
        output.show_table(screen, table)
        screen.print(f"logs: {', '.join(_logs(cluster.brokers))}", soft_wrap=True)
    screen.print(output.verdict_line(cluster.all_up, cluster.summary), soft_wrap=True)


def _logs(brokers: "list[BrokerState]") -> list[str]:
    """Return the log files: the first with its folder, the others relative to it."""
    first, *more = dict.fromkeys(broker.log for broker in brokers)
    folder = os.path.dirname(first)
    return [first, *(os.path.relpath(log, folder) for log in more)]


@click.command(epilog=examples("tidelog down", "tidelog down --data my-data --wait 5"))
@data_option
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=40.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a clean stop; after that, processes are killed.",
)
@format_option()
def down(data: str, wait: float, form: str) -> int:
    """Stop a cluster on this machine, including brokers that were started by hand.

    The data is kept, except that of `tidelog up --ephemeral`. Exit code 0 means that all brokers
    stopped cleanly.
    """
    from tidelog.shell.supervisor.cluster_control import stop_cluster

    folder = os.path.abspath(data)
    if not os.path.isdir(folder):
        raise usage_error(f"folder {data} does not exist; name the cluster's folder with --data")
    result = stop_cluster(folder, wait)
    return output.conclude(
        form,
        result.clean,
        result.as_data(),
        lambda screen: screen.print(
            output.verdict_line(result.clean, result.summary), soft_wrap=True
        ),
    )
