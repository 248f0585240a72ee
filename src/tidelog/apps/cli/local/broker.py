"""`tidelog broker`: run one broker in the foreground; start, kill, pause or resume a broker of
`tidelog up`; drain a broker of any cluster.

Without a command it runs a broker: service files and containers call it like that, also without
options and with all configs in the environment.
"""

import os
import sys
from collections.abc import Callable

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.local.lifecycle import data_option
from tidelog.apps.cli.usage import LazyCommands, Section, examples, format_option

INVALID_CONFIGS = 2


_REFUSED = "REFUSED"

ids_argument = click.argument(
    "brokers", metavar="ID...", nargs=-1, required=True, type=click.IntRange(0)
)


@click.command(epilog=examples("tidelog broker start 2", "tidelog broker start 2 3 --data my-data"))
@ids_argument
@data_option
@click.option(
    "--wait",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each broker to rejoin the cluster.",
)
@format_option()
def start(brokers: tuple[int, ...], data: str, wait: float, form: str) -> int:
    """Restart brokers that died or were killed.

    The running `tidelog up` restarts them, with the same configs and ports. Exit code 0 means that
    all of them rejoined the cluster.
    """
    from tidelog.shell.supervisor import broker_control

    return _each(brokers, form, lambda broker: broker_control.start(_folder(data), broker, wait))


@click.command(epilog=examples("tidelog broker kill 2", "tidelog broker kill 1 --data my-data"))
@ids_argument
@data_option
@format_option()
def kill(brokers: tuple[int, ...], data: str, form: str) -> int:
    """Kill brokers with SIGKILL, like a crash. Returns when their processes have ended."""
    from tidelog.shell.supervisor import broker_control

    return _each(brokers, form, lambda broker: broker_control.kill(_folder(data), broker))


@click.command(epilog=examples("tidelog broker pause 2"))
@ids_argument
@data_option
@format_option()
def pause(brokers: tuple[int, ...], data: str, form: str) -> int:
    """Pause brokers with SIGSTOP: they hang, and their connections stay open."""
    from tidelog.shell.supervisor import broker_control

    return _each(brokers, form, lambda broker: broker_control.pause(_folder(data), broker))


@click.command(epilog=examples("tidelog broker resume 2"))
@ids_argument
@data_option
@format_option()
def resume(brokers: tuple[int, ...], data: str, form: str) -> int:
    """Resume paused brokers with SIGCONT."""
    from tidelog.shell.supervisor import broker_control

    return _each(brokers, form, lambda broker: broker_control.resume(_folder(data), broker))


COMMANDS = LazyCommands(
    {
        **{name: f"{__name__}:{name}" for name in ("start", "kill", "pause", "resume")},
        "drain": "tidelog.apps.cli.local.drain:drain",
    }
)


def _folder(data: str) -> str:
    return os.path.abspath(data)


def _each(brokers: tuple[int, ...], form: str, act: Callable[[int], str]) -> int:
    """Apply `act` to each broker in turn; return the exit code."""
    from tidelog.apps.changes.outcome import Change, done
    from tidelog.shell.supervisor.data_folder import Refusal

    changes = []
    for broker in dict.fromkeys(brokers):
        try:
            changes.append(done(str(broker), act(broker)))
        except Refusal as refusal:
            changes.append(Change(str(broker), "", _REFUSED, str(refusal)))
    return output.conclude_changes(form, "brokers", changes)


class RunnableGroup(Section):
    """A group that runs without a command, even without arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Group.parse_args(self, ctx, args)


@click.group(
    cls=RunnableGroup,
    invoke_without_command=True,
    commands=COMMANDS,
    subcommand_metavar="[COMMAND [ARGS]...]",
    epilog=examples(
        "tidelog broker start 2",
        "tidelog broker --config server.properties",
        "tidelog broker --set node.id=1 --data my-data",
        "tidelog broker --set node.id=2 --set listeners=PLAINTEXT://localhost:9093",
    ),
)
@click.option(
    "--config",
    metavar="FILE",
    help="Read configs from FILE, in the format of Kafka's server.properties.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one config (takes precedence over file and environment); repeatable.",
)
@click.option(
    "--data",
    metavar="DIR",
    help="Data folder of the cluster: sets log.dirs to DIR/broker-<node.id> and the metadata store"
    " to that of the folder. Can't be combined with --set log.dirs or --set"
    " tidelog.metadata.store.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit if a config has no effect; by default it is only a warning, as in Kafka.",
)
@click.pass_context
def broker(
    ctx: click.Context, config: str | None, sets: tuple[str, ...], data: str | None, strict: bool
) -> int | None:
    """Run one broker in the foreground until SIGTERM or Ctrl-C; with COMMAND, control a broker.

    --set takes precedence over KAFKA_* environment variables, and these over FILE. The log goes to
    stderr. Exit code 0 means that the broker stopped cleanly.
    """
    if ctx.invoked_subcommand is not None:
        if config or sets or data or strict:
            name = ctx.invoked_subcommand
            raise click.UsageError(f"options of {name!r} must come after the word {name!r}", ctx)
        return None
    return _run(config, sets, data, strict)


def _run(config: str | None, sets: tuple[str, ...], data: str | None, strict: bool) -> int:
    from tidelog.shell.broker.process import run_brokers
    from tidelog.shell.settings_sources import load_settings
    from tidelog.shell.store import cluster_file
    from tidelog.shell.store.open_store import store_of
    from tidelog.shell.store.store_backend import StoreError
    from tidelog.shell.supervisor import data_folder
    from tidelog.shell.supervisor.report_line import line_writer

    try:
        resolved = load_settings(config, os.environ, sets)
        if data is not None:
            folder = os.path.abspath(data)
            disks = cluster_file.disks(folder)
            data_folder.check_names(folder, disks)
            log_dirs = data_folder.log_dirs(folder, resolved.settings.node_id, disks)
            own = {
                "log.dirs": ",".join(log_dirs),
                "tidelog.metadata.store": data_folder.store_url(folder),
            }
            _check_conflicts(sets, own)
            own_sets = [f"{name}={value}" for name, value in own.items()]
            resolved = load_settings(config, os.environ, [*sets, *own_sets])
        if strict and resolved.warnings:
            raise ValueError("\n".join(resolved.warnings))
    except (ValueError, StoreError, data_folder.WrongSetting) as error:
        for line in str(error).splitlines():
            click.echo(f"tidelog: {line}", err=True)
        return INVALID_CONFIGS
    line_of = line_writer(resolved.settings.get("tidelog.log.format"))

    def report(event: dict[str, object]) -> None:
        sys.stderr.write(f"{line_of(event)}\n")
        sys.stderr.flush()

    for warning in resolved.warnings:
        report({"event": "log", "level": "WARN", "text": warning})
    settings = resolved.settings
    try:
        store = store_of(settings)
    except StoreError as error:
        click.echo(f"tidelog: {error}", err=True)
        return INVALID_CONFIGS
    own_file = settings.metadata_store.startswith("sqlite:")
    place = os.path.abspath(store.place) if own_file else store.place
    folders = " and ".join(os.path.abspath(folder) for folder in settings.log_dirs)
    where = f"data in {folders}, metadata in {place}"
    report({"event": "log", "level": "INFO", "text": f"broker {settings.node_id}: {where}"})
    return run_brokers([settings], report)


def _check_conflicts(sets: tuple[str, ...], own: dict[str, str]) -> None:
    """Raise ValueError where `--set` and `--data` name different places."""
    own = {**own, "log.dir": own["log.dirs"]}
    for text in sets:
        name, _, value = text.partition("=")
        chosen = own.get(name.strip(), value)
        if os.path.abspath(value.strip().removeprefix("sqlite:")) != os.path.abspath(
            chosen.removeprefix("sqlite:")
        ):
            raise ValueError(
                f"--set {text} contradicts --data, which sets {chosen}; remove one of them"
            )
