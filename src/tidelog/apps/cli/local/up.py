"""`tidelog up` as a click command. The work is in `bring_up`, the options are in `up_options`."""

import time
from typing import Any

import click

from tidelog.apps.cli.local import up_options
from tidelog.apps.cli.local.up_options import OPTIONS, Option
from tidelog.apps.cli.usage import examples


def _option(option: Option) -> click.Option:
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
        [option.written, option.field],
        metavar=option.metavar,
        show_default=option.shown,
        **extra,
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
        raise click.UsageError(conflict, click.get_current_context())
    return bring_up(options, time.monotonic())


up = click.Command(
    "up",
    callback=_up,
    help=_up.__doc__,
    params=[
        *map(_option, OPTIONS),
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
