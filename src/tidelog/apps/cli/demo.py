"""`tidelog demo`: kill a leader under a Spark job, check for loss, write a report."""

import os
import sys
import time
from importlib.util import find_spec
from shutil import copyfile, get_terminal_size
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import examples, format_option, write_file

if TYPE_CHECKING:
    from tidelog.apps.demo.history import History
    from tidelog.apps.demo.outcome import Outcome

REFRESH_S = 0.2
REPORT = os.path.join("tidelog-demo", "report.html")


@click.command(
    epilog=examples(
        "tidelog demo", "tidelog demo --no-spark", "tidelog demo --report run.html --format json"
    )
)
@click.option(
    "--report",
    "report_path",
    type=click.Path(dir_okay=False, writable=True),
    default=REPORT,
    show_default=True,
    metavar="FILE",
    help="Write the report to this HTML file.",
)
@click.option("--no-spark", is_flag=True, help="Run without the Spark job; takes ten seconds.")
@format_option()
def demo(report_path: str, no_spark: bool, form: str) -> int:
    """Kill a leader while a producer and a Spark job run, and check that nothing is lost.

    Starts three brokers in a temporary folder and on free ports. A librdkafka producer writes with
    acks=all. A Spark job writes the records to Parquet and aggregates them in windows. The leader
    is killed with SIGKILL and restarted. Takes about a minute, most of it Spark's startup. Writes
    a report with a chart of log ends, high watermark, in-sync replicas and leader epochs, and the
    history of the run as lines of JSON.

    Exit code 0 means: every acknowledged record is in the log and in the lake exactly once, all
    window sums are right, and the audit finds no difference between replicas.
    """
    from tempfile import TemporaryDirectory

    from tidelog.apps.cli.partition import show_partitions
    from tidelog.apps.demo.job_process import JobFailed
    from tidelog.apps.demo.orders import PARTITION, TOPIC
    from tidelog.apps.demo.play import Audience, Play, PlayFailed
    from tidelog.apps.demo.report.page import verdict
    from tidelog.apps.views.partition import view_partitions
    from tidelog.shell.client.cluster import Cluster

    _require_librdkafka()
    _folder_of(report_path)
    if not no_spark:
        _require_spark()
    text = form == "text"
    screen = output.screen()
    waiting = WaitingLine()

    def print_step(step: str) -> None:
        waiting.clear()
        if text:
            screen.print(f"{waiting.seconds:5.1f} s  {step}", soft_wrap=True)

    def print_partition(bootstrap: str) -> None:
        waiting.clear()
        if text:
            with Cluster(bootstrap) as cluster:
                show_partitions(screen, view_partitions(cluster, TOPIC, PARTITION))

    with TemporaryDirectory(prefix="tidelog-demo-") as work:
        audience = Audience(print_step, waiting.show, print_partition)
        try:
            outcome, history = Play(audience, work, with_spark=not no_spark).run()
        except PlayFailed as error:
            raise click.ClickException(str(error)) from None
        except JobFailed as error:
            kept = _keep_log(error.log_path, report_path)
            raise click.ClickException(f"{error}; Spark's log: {kept}") from None
        finally:
            waiting.clear()
    path, history_path = _write_report(outcome, history, report_path)
    print_step(f"report: {path}; history: {history_path}")
    return output.conclude(
        form,
        outcome.holds,
        {**outcome.as_data(), "report": path, "history": history_path},
        lambda screen: screen.print(output.verdict_line(outcome.holds, verdict(outcome))),
    )


class WaitingLine:
    """A line on stderr that shows what the demo waits for; only on a terminal."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown_s = 0.0
        self._visible = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def show(self, what: str) -> None:
        if not sys.stderr.isatty() or self.seconds - self._shown_s < REFRESH_S:
            return
        self._shown_s = self.seconds
        self._visible = True
        wide = get_terminal_size().columns - 1
        line = f"{self.seconds:5.1f} s  {what} …"
        sys.stderr.write(f"\r\x1b[2K{line[:wide]}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._visible:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._visible = False


def _require_librdkafka() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise click.ClickException(
            "the demo needs confluent-kafka: pip install confluent-kafka"
        ) from None


def _require_spark() -> None:
    """Raise ClickException if Spark or Java is missing."""
    from tidelog.apps import install_advice
    from tidelog.apps.spark.session import NoJava, find_java

    without = "`tidelog demo --no-spark` runs without Spark"
    for package in ("pyspark", "pyarrow", "numpy"):
        if find_spec(package) is None:
            raise click.ClickException(
                f"the demo needs {package}: {install_advice.SPARK}; {without}"
            )
    try:
        find_java()
    except NoJava as error:
        raise click.ClickException(f"{error}; {without}") from None


def _keep_log(log_path: str, report_path: str) -> str:
    """Copy Spark's log into the folder of the report; return its path."""
    kept = os.path.join(_folder_of(report_path), "spark.log")
    copyfile(log_path, kept)
    return kept


def _folder_of(path: str) -> str:
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"can't create the folder of {path}: {error.strerror}") from error
    return folder


def _write_report(outcome: "Outcome", history: "History", path: str) -> tuple[str, str]:
    """Write the report; return its full path."""
    from tidelog.apps.demo.report.page import page
    from tidelog.apps.demo.timeline import build_timeline

    full = os.path.join(_folder_of(path), os.path.basename(path))
    command = "tidelog demo" if outcome.spark else "tidelog demo --no-spark"
    write_file(full, page(outcome, build_timeline(history.events), command))
    history_path = f"{os.path.splitext(full)[0]}-history.jsonl"
    write_file(history_path, history.lines())
    return full, history_path
