"""`tidelog verify`: write and read under faults, then check the history for loss and corruption."""

import os
import random

import click

from tidelog.apps.cli.connection import LAST_RESORT
from tidelog.apps.cli.usage import examples, format_option
from tidelog.apps.near_names import near

SEED_MAX = 2**31 - 1


def _known_faults(
    ctx: click.Context, _param: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    from tidelog.apps.verify.nemesis.plan import KINDS

    if text is None or text == "none":
        return None if text is None else ()
    kinds = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise click.BadParameter(f"unknown fault {kind!r}; {near(kind, [*KINDS, 'none'])}", ctx)
    return kinds


def _addresses(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    from tidelog.shell.client.cluster import parse_address

    try:
        for address in text.split(",") if text is not None else ():
            parse_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def _usable_folder(_ctx: click.Context, _param: click.Parameter, path: str | None) -> str | None:
    if path is not None and os.path.isdir(path) and os.listdir(path):
        raise click.BadParameter(f"{path} is not empty; name a new folder")
    return path


@click.command(
    "verify",
    epilog=examples(
        "tidelog verify",
        "tidelog verify --seconds 30 --faults kill,pause --seed 7",
        f"tidelog verify --bootstrap {LAST_RESORT} --seconds 20",
        "tidelog verify --acks 1 --faults kill --keep evidence",
    ),
)
@click.option(
    "--seconds",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="How many seconds producers write.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, SEED_MAX),
    help="Seed of the fault schedule; repeat a run with the same seed.  [default: random]",
)
@click.option(
    "--bootstrap",
    callback=_addresses,
    metavar="ADDRESS",
    help="Verify this cluster (Tidelog or Kafka), without faults.  [default: start three brokers]",
)
@click.option(
    "--faults",
    "kinds",
    callback=_known_faults,
    metavar="FAULTS",
    help="Faults to inject, separated by commas: kill, pause, restart, isolate, disk-full, rolling,"
    " damage, damage-live, kill-two, kill-all; or none.  [default: the first seven]",
)
@click.option(
    "--producers",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Number of producers.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    help="Records per second of all producers together.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="acks of the producers; 1 allows loss, and turns idempotence off.",
)
@click.option("--no-idempotence", is_flag=True, help="Use producers without idempotence.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Partitions of the test topic.",
)
@click.option(
    "--client",
    type=click.Choice(["both", "librdkafka", "own"]),
    default="both",
    show_default=True,
    help="Client library of producers and consumers. Tidelog's own client always reads too.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False),
    callback=_usable_folder,
    metavar="DIR",
    help="Keep the history files and the brokers' folders in DIR.",
)
@format_option()
def verify(
    seconds: int,
    seed: int | None,
    bootstrap: str | None,
    kinds: tuple[str, ...] | None,
    producers: int,
    rate: int,
    acks: str,
    no_idempotence: bool,
    partitions: int,
    client: str,
    keep: str | None,
    form: str,
) -> int:
    """Write and read while faults are injected, then check the history for anomalies.

    Starts three brokers (replication factor 3, min.insync.replicas 2), or uses the cluster of
    --bootstrap. Anomalies are lost, duplicate, reordered or changed records. Exit code 0 means
    that none was found.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering.verify import VerifyView
    from tidelog.apps.verify.nemesis.plan import DEFAULT_KINDS
    from tidelog.apps.verify.options import Options
    from tidelog.apps.verify.run import RunFailed
    from tidelog.apps.verify.run import verify as make_run

    if bootstrap is not None and kinds:
        raise click.UsageError(
            "--faults can't be combined with --bootstrap: faults are injected into own brokers only"
        )
    if kinds is None:
        kinds = () if bootstrap is not None else DEFAULT_KINDS
    options = Options(
        random.randrange(SEED_MAX) if seed is None else seed,
        seconds,
        bootstrap,
        kinds,
        producers,
        rate,
        acks,
        not no_idempotence and acks == "all",
        partitions,
        client,
        keep,
    )
    try:
        with output.progress(f"seed {options.seed}", seconds) as tell:
            report = make_run(options, lambda done, note: tell(int(done), note))
    except RunFailed as error:
        raise click.ClickException(f"{error} (seed {options.seed})") from error
    view = VerifyView(report)
    return output.conclude(form, report.holds, report.as_data(), view.show)
