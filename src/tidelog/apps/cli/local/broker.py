"""`tidelog broker`: run one broker in the foreground, as a service manager wants it; or start,
kill, pause or resume one of a cluster that `tidelog up` runs.

Without a command it runs a broker, as it did before there were commands: service files and
containers call it like that, also with all settings in the environment and no option at all.
"""

import os
import sys

import click

from tidelog.apps.cli.local import one_broker
from tidelog.apps.cli.usage import Section, examples

BAD_SETTINGS = 2


class RunsByItself(Section):
    """A group that does something without a command, even without any argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Group.parse_args(self, ctx, args)


@click.group(
    cls=RunsByItself,
    invoke_without_command=True,
    commands=one_broker.COMMANDS,
    subcommand_metavar="[COMMAND [ARGS]...]",
    epilog=examples(
        "tidelog broker start 2",
        "tidelog broker --config server.properties",
        "tidelog broker --set node.id=1 --data my-data",
        "tidelog broker --set node.id=2 --set listeners=PLAINTEXT://localhost:9093",
    ),
)
@click.option("--config", metavar="FILE", help="Settings as in Kafka's server.properties.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting; the strongest.")
@click.option(
    "--data",
    metavar="DIR",
    help="The cluster's folder: log.dirs is DIR/broker-<node.id>, the store DIR/cluster.db."
    " Not together with --set log.dirs or --set tidelog.metadata.store.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse settings without effect; by default they warn, as in Kafka.",
)
@click.pass_context
def broker(
    ctx: click.Context, config: str | None, sets: tuple[str, ...], data: str | None, strict: bool
) -> int | None:
    """Run one broker in the foreground, until SIGTERM or Ctrl-C; or control one with COMMAND.

    Settings come from FILE, then from KAFKA_* variables, then from --set, each stronger than
    those before. The log goes to stderr. Exit code 0 means that it stopped cleanly.
    """
    if ctx.invoked_subcommand is not None:
        if config or sets or data or strict:
            name = ctx.invoked_subcommand
            raise click.UsageError(f"options of {name!r} must follow it", ctx)
        return None
    return _run(config, sets, data, strict)


def _run(config: str | None, sets: tuple[str, ...], data: str | None, strict: bool) -> int:
    from tidelog.shell.broker.process import run_brokers
    from tidelog.shell.settings_sources import load_settings
    from tidelog.shell.store.open_store import store_at
    from tidelog.shell.supervisor.preflight import data_folder
    from tidelog.shell.supervisor.report_line import line_writer

    try:
        resolved = load_settings(config, os.environ, sets)
        if data is not None:
            folder = os.path.abspath(data)
            log_dir = data_folder.log_dir(folder, resolved.settings.node_id)
            store = os.path.join(folder, data_folder.STORE)
            own = {"log.dirs": log_dir, "tidelog.metadata.store": f"sqlite:{store}"}
            _check_unset(sets, own)
            own_sets = [f"{name}={value}" for name, value in own.items()]
            resolved = load_settings(config, os.environ, [*sets, *own_sets])
        if strict and resolved.warnings:
            raise ValueError("\n".join(resolved.warnings))
    except ValueError as error:
        for line in str(error).splitlines():
            click.echo(f"tidelog: {line}", err=True)
        return BAD_SETTINGS
    line_of = line_writer(resolved.settings.get("tidelog.log.format"))

    def report(said: dict[str, object]) -> None:
        sys.stderr.write(f"{line_of(said)}\n")
        sys.stderr.flush()

    for warning in resolved.warnings:
        report({"event": "log", "level": "WARN", "text": warning})
    settings = resolved.settings
    store = store_at(settings.metadata_store).place
    where = f"data in {os.path.abspath(settings.log_dir)}, metadata in {os.path.abspath(store)}"
    report({"event": "log", "level": "INFO", "text": f"broker {settings.node_id}: {where}"})
    return run_brokers([settings], report)


def _check_unset(sets: tuple[str, ...], own: dict[str, str]) -> None:
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
