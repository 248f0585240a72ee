"""`tidelog verify`: write and read under faults, then check that nothing was lost or changed."""

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
            raise click.BadParameter(f"no fault {kind!r}; {near(kind, [*KINDS, 'none'])}", ctx)
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
    help="How long producers write.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, SEED_MAX),
    help="Repeats a plan of faults.  [default: a new one, printed]",
)
@click.option(
    "--bootstrap",
    callback=_addresses,
    metavar="ADDRESS",
    help="Verify this cluster, any Kafka, without faults.  [default: three brokers of our own]",
)
@click.option(
    "--faults",
    "kinds",
    callback=_known_faults,
    metavar="FAULTS",
    help="Faults to inject: some of kill, pause, restart, isolate, disk-full, rolling, damage,"
    " damage-live, kill-two, kill-all, with commas; or none.  [default: the first seven]",
)
@click.option(
    "--producers",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="How many producers write.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    help="Records a second, all producers together.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="What producers wait for; 1 promises little, and goes without idempotence.",
)
@click.option("--no-idempotence", is_flag=True, help="Producers do not number their batches.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Partitions of the topic that is written.",
)
@click.option(
    "--client",
    type=click.Choice(["both", "librdkafka", "own"]),
    default="both",
    show_default=True,
    help="Which client library writes and reads. Our own always reads too.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False),
    callback=_usable_folder,
    metavar="DIR",
    help="Leave the journals and the brokers' folders there.",
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
    """Write and read under faults, then check the whole history.

    Starts three brokers of its own (replication factor 3, min.insync.replicas 2), or takes the
    cluster that --bootstrap names. Exit code 0 means that no anomaly was found.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering.verify import VerifyView
    from tidelog.apps.verify.nemesis.plan import DEFAULT_KINDS
    from tidelog.apps.verify.options import Options
    from tidelog.apps.verify.run import RunFailed
    from tidelog.apps.verify.run import verify as make_run

    if bootstrap is not None and kinds:
        raise click.UsageError("faults need a cluster of our own; leave out --bootstrap")
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
