"""`tidelog broker`: one broker in the foreground, as a service manager wants it."""

import os
import sys

import click

from tidelog.apps.cli.usage import examples

BAD_SETTINGS = 2


@click.command(
    epilog=examples(
        "tidelog broker --config server.properties",
        "tidelog broker --set node.id=1 --data my-data",
        "tidelog broker --set node.id=2 --set listeners=PLAINTEXT://localhost:9093",
    )
)
@click.option("--config", metavar="FILE", help="Settings as in Kafka's server.properties.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting; the strongest.")
@click.option(
    "--data",
    metavar="DIR",
    help="The cluster's folder: log.dirs is DIR/broker-<node.id>, the store DIR/cluster.db.",
)
def broker(config: str | None, sets: tuple[str, ...], data: str | None) -> int:
    """Run one broker in the foreground, until SIGTERM or Ctrl-C.

    Settings come from FILE, then from KAFKA_* variables, then from --set, each stronger than
    those before. The log goes to stderr. Exit code 0 means that it stopped cleanly.
    """
    from tidelog.shell.broker.process import run_brokers
    from tidelog.shell.settings_sources import load_settings
    from tidelog.shell.supervisor.preflight import data_folder
    from tidelog.shell.supervisor.report_line import line_writer

    try:
        resolved = load_settings(config, os.environ, sets)
        if data is not None:
            folder = os.path.abspath(data)
            log_dir = data_folder.log_dir(folder, resolved.settings.node_id)
            store = os.path.join(folder, data_folder.STORE)
            own = [f"log.dirs={log_dir}", f"tidelog.metadata.store=sqlite:{store}"]
            resolved = load_settings(config, os.environ, [*sets, *own])
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
    store = settings.metadata_store.removeprefix("sqlite:")
    where = f"data in {os.path.abspath(settings.log_dir)}, metadata in {os.path.abspath(store)}"
    report({"event": "log", "level": "INFO", "text": f"broker {settings.node_id}: {where}"})
    return run_brokers([settings], report)
