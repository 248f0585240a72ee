"""`tidelog audit`: check and compare replicas' files on disk, with Spark."""

import click

from tidelog.apps.cli.usage import examples, format_option


def _settings(
    _ctx: click.Context, _param: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{pair!r} is not in the form KEY=VALUE")
        settings[key] = value
    return settings


@click.command(
    "audit",
    epilog=examples(
        "tidelog audit tidelog-data",
        "tidelog audit /var/kafka/broker-1 /var/kafka/broker-2 --format json",
        "tidelog audit tidelog-data/broker-1/orders-0",
        "tidelog audit tidelog-data --master spark://host:7077 --conf spark.executor.memory=2g",
    ),
)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option("--deep", is_flag=True, help="Also decode every record of every batch.")
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Spark master. Its workers must have the folders under the same paths.",
)
@click.option(
    "--conf",
    "settings",
    multiple=True,
    callback=_settings,
    metavar="KEY=VALUE",
    help="Set a Spark config; repeatable.",
)
@format_option()
def audit(
    folders: tuple[str, ...], deep: bool, master: str, settings: dict[str, str], form: str
) -> int:
    """Check the files of all replicas on disk, and compare replicas of the same partition.

    DIR is a broker's data folder, a folder that contains several of them, or a partition's folder,
    of Tidelog or Kafka. Brokers may be running; DIR may be a copy. Nothing is written to it.
    Reports damaged batches, gaps, replicas that differ, and wrong indexes and checkpoints. Exit
    code 0 means that no damage was found. Lagging replicas and uncommitted records are reported,
    but are not damage.
    """
    from tidelog.apps import install_advice
    from tidelog.apps.audit.folders.discovery import NothingThere, find_log_dirs
    from tidelog.apps.cli import output
    from tidelog.apps.spark.session import NoJava, spark_session

    try:
        find_log_dirs(folders)
    except NothingThere as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    try:
        from tidelog.apps.audit.run import audit as make_audit
        from tidelog.apps.cli.rendering.audit import AuditView
    except ImportError as error:
        raise click.ClickException(
            f"the audit needs Spark ({error.name} is missing): {install_advice.SPARK}"
        ) from error
    settings = {"spark.log.level": "ERROR", **settings}
    try:
        with output.progress("audit") as tell:
            tell(0, "starting Spark")
            spark = spark_session("tidelog-audit", master, settings)
            report = make_audit(spark, folders, deep, lambda note: tell(0, note))
    except NoJava as error:
        raise click.ClickException(str(error)) from error
    view = AuditView(report)
    return output.conclude(form, report.holds, report.as_data(), view.show)
