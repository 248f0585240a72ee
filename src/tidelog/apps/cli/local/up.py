"""`tidelog up`: a cluster on this machine.

The work is in `bring_up`; here is what may be typed.
"""

import click

from tidelog.apps.cli.usage import examples, format_option


@click.command(
    epilog=examples(
        "tidelog up",
        "tidelog up --ephemeral --port 0 --one-process",
        "tidelog up --detach --data my-data",
        "tidelog up --ephemeral --port 0 -- pytest tests",
        "tidelog up --brokers 1 --set log.retention.ms=60000",
    )
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    help="How many brokers.  [default: as many as have data in the folder, else 3]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="The first broker's port; the others follow. 0 takes free ones.",
)
@click.option(
    "--data",
    metavar="DIR",
    help="Where to keep the data.  [default: tidelog-data in the current folder]",
)
@click.option("--ephemeral", is_flag=True, help="Keep the data in a temporary folder only.")
@click.option("--one-process", is_flag=True, help="All brokers in one process: the lightest.")
@click.option("--detach", is_flag=True, help="Return when the cluster is ready; it goes on.")
@click.option("--supervise", is_flag=True, help="Start a broker again that died.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting of all brokers.")
@click.option("--racks", default="", metavar="A,B,..", help="The brokers' racks, in turn.")
@click.option(
    "--wait",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up if the cluster is not ready by then.",
)
@format_option()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def up(command: tuple[str, ...], **given: object) -> int:
    """Start a cluster on this machine: three brokers on ports 9092 to 9094.

    Returns when the cluster was stopped, with Ctrl-C or `tidelog down`. With COMMAND, the
    command is run with KAFKA_BOOTSTRAP_SERVERS set, the cluster is stopped when it ends, and
    its exit code is returned. Otherwise 0 means that all brokers stopped cleanly.
    """
    from tidelog.apps.cli.local.bring_up import UpOptions, bring_up

    if given["ephemeral"] and given["data"]:
        raise click.UsageError("--ephemeral and --data exclude each other", _context())
    if command and (given["detach"] or given["form"] == "json"):
        raise click.UsageError("--detach and --format json are not for a COMMAND", _context())
    return bring_up(UpOptions(command=command, **given))  # type: ignore[arg-type]  # click checked


def _context() -> click.Context:
    return click.get_current_context()
