"""`tidelog inspect`: show files of a log directory, Tidelog's or Kafka's.

Invariant: files are opened for reading only; a broker may be using them.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import Section, examples, format_option, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.cli.rendering.segment_view import Printer
    from tidelog.apps.log_files.checkpoint_files import Checkpoints, Epochs

SEGMENT_FILES = "a .log, .index, .timeindex, .txnindex or .snapshot file, or a partition's folder"


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog inspect segment orders-0/00000000000000000000.log --records",
        "tidelog inspect epochs orders-0",
        "tidelog inspect checkpoints tidelog-data/broker-1",
    ),
)
def inspect() -> None:
    """Show and check segments, leader epochs and checkpoints on disk (Tidelog or Kafka)."""


@inspect.command(
    "segment",
    epilog=examples(
        "tidelog inspect segment orders-0/00000000000000000000.log",
        "tidelog inspect segment orders-0/00000000000000000000.log --records",
        "tidelog inspect segment orders-0 --format json",
    ),
)
@click.argument("path")
@click.option("--records", is_flag=True, help="Decode the batches and print each record.")
@format_option()
def segment_command(path: str, records: bool, form: str) -> int:
    """Show the batches of a segment, or the entries of an index or snapshot.

    PATH is a .log, .index, .timeindex, .txnindex or .snapshot file, or a partition's folder; for
    a folder, all its segments are shown. Exit code 0 means that every checksum is right and no
    problem was found.
    """
    from tidelog.apps.cli.rendering import segment_view
    from tidelog.apps.log_files.read_only_file import CannotRead, Vanished

    _check_exists(path)
    paths = _segment_files(path)
    holds = True
    try:
        shown = segment_view.printer(form)
        for each in paths:
            try:
                holds = _show_file(shown, each, records) and holds
            except Vanished:
                if each == path:  # else a broker deleted the segment since it was listed
                    raise
        shown.end(holds)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) is done; discard the buffer without an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CannotRead as error:
        raise click.ClickException(str(error)) from error
    return 0 if holds else 1


def _bad_path(what: str) -> click.UsageError:
    return usage_error(what)


def _check_exists(path: str) -> None:
    if not os.path.exists(path):
        raise _bad_path(f"file or folder {path!r} does not exist")


def _segment_files(path: str) -> list[str]:
    from tidelog.core.storage import layout

    if not os.path.isdir(path):
        if layout.parse_file(os.path.basename(path)) is None:
            name = layout.file_name(0, layout.LOG)
            raise _bad_path(f"{path!r} is not named like {name}; give {SEGMENT_FILES}")
        return [path]
    names = sorted(os.listdir(path))
    parsed = [(name, layout.parse_file(name)) for name in names]
    logs = [name for name, file in parsed if file and file.kind == layout.LOG and not file.suffix]
    if not logs:
        raise _bad_path(f"{path!r} has no .log file; give {SEGMENT_FILES}")
    return [os.path.join(path, name) for name in logs]


def _show_file(shown: "Printer", path: str, records: bool) -> bool:
    from tidelog.apps.log_files.index_files import read_index_file
    from tidelog.apps.log_files.read_only_file import ReadOnlyFile
    from tidelog.apps.log_files.segment_file import SegmentFile
    from tidelog.core.storage import layout

    name = layout.parse_file(os.path.basename(path))
    assert name is not None
    with ReadOnlyFile(path) as file:
        size = file.size()
        if name.kind == layout.LOG:
            walk = SegmentFile(file, name.base_offset).walk()
            return not shown.log(path, size, walk, records).problems
    found = read_index_file(path, name.kind, name.base_offset)
    shown.index(path, size, found)
    return not found.problems


@inspect.command(
    "epochs",
    epilog=examples(
        "tidelog inspect epochs orders-0",
        "tidelog inspect epochs orders-0/leader-epoch-checkpoint --format json",
    ),
)
@click.argument("path")
@format_option()
def epochs_command(path: str, form: str) -> int:
    """Show the leader epochs of a partition and their start offsets.

    PATH is a partition's folder, or its leader-epoch-checkpoint.
    """
    from tidelog.apps.log_files.checkpoint_files import read_epochs
    from tidelog.apps.log_files.read_only_file import CannotRead, Vanished

    _check_exists(path)
    try:
        found = read_epochs(path)
    except Vanished as error:
        raise _bad_path(
            f"{path!r} has no leader-epoch-checkpoint; give a partition's folder"
        ) from error
    except CannotRead as error:
        raise click.ClickException(str(error)) from error
    view = EpochsView(found)
    return output.conclude(form, not found.problems, view.as_data(), view.show)


@inspect.command(
    "checkpoints",
    epilog=examples(
        "tidelog inspect checkpoints tidelog-data/broker-1",
        "tidelog inspect checkpoints kafka-logs/replication-offset-checkpoint --format json",
    ),
)
@click.argument("path")
@format_option()
def checkpoints_command(path: str, form: str) -> int:
    """Show the checkpointed offsets of a log directory, and its broker and cluster ids.

    PATH is a log directory or one of its files: recovery-point-offset-checkpoint,
    replication-offset-checkpoint (high watermarks), log-start-offset-checkpoint,
    cleaner-offset-checkpoint, meta.properties, .kafka_cleanshutdown.
    """
    from tidelog.apps.log_files import checkpoint_files
    from tidelog.apps.log_files.read_only_file import CannotRead

    _check_exists(path)
    if not os.path.isdir(path) and not checkpoint_files.is_checkpoint(os.path.basename(path)):
        known = ", ".join(checkpoint_files.DIRECTORY_FILES)
        raise _bad_path(f"{path!r} is not one of {known}")
    try:
        found = checkpoint_files.read_checkpoints(path)
    except CannotRead as error:
        raise click.ClickException(str(error)) from error
    if not found.files:
        raise _bad_path(f"{path!r} has no checkpoints; give a log directory")
    view = CheckpointsView(path, found)
    return output.conclude(form, not found.problems, view.as_data(), view.show)


# -- text and JSON of epochs and checkpoints --------------------------------------------------


class EpochsView(NamedTuple):
    """A partition's leader epochs."""

    found: "Epochs"

    def as_data(self) -> dict[str, Any]:
        entries = [
            {"epoch": entry.epoch, "start_offset": entry.start_offset, "end_offset": end}
            for entry, end in zip(self.found.entries, self.found.ends(), strict=True)
        ]
        return {"path": self.found.path, "epochs": entries, "problems": self.found.problems}

    def show(self, screen: "Console") -> None:
        screen.print(output.heading(self.found.path))
        columns = ("epoch", "start offset", "end offset", "offsets")
        table = output.table(columns, numbers=columns)
        for entry, end in zip(self.found.entries, self.found.ends(), strict=True):
            span = output.UNKNOWN if end is None else str(end - entry.start_offset)
            last = "log end" if end is None else str(end)
            table.add_row(str(entry.epoch), str(entry.start_offset), last, span)
        if self.found.entries:
            output.show_table(screen, table)
        _verdict(screen, self.found.problems, f"{len(self.found.entries)} epochs")


class CheckpointsView(NamedTuple):
    """The checkpoints of a log directory."""

    path: str
    found: "Checkpoints"

    def as_data(self) -> dict[str, Any]:
        rows = []
        for partition in self.found.partitions():
            offsets = {what: found.get(partition) for what, found in self.found.offsets.items()}
            row = {"topic": partition.topic, "partition": partition.partition, **offsets}
            rows.append(row)
        return {
            "path": self.path,
            "files": self.found.files,
            "properties": self.found.properties,
            "clean_shutdown": self.found.clean_shutdown,
            "partitions": rows,
            "problems": self.found.problems,
        }

    def show(self, screen: "Console") -> None:
        screen.print(output.heading(self.path))
        for key, value in self.found.properties.items():
            screen.print(f"  {key} = {value}")
        if self.found.clean_shutdown is not None:
            epoch = self.found.clean_shutdown.get("brokerEpoch")
            note = "" if epoch is None else f", broker epoch {epoch}"
            screen.print(f"  stopped cleanly{note}")
        from tidelog.apps.log_files.checkpoint_files import OFFSET_FILES

        kinds = [what for what in OFFSET_FILES.values() if what in self.found.offsets]
        names = [what.replace("_", " ") for what in kinds]
        table = output.table(["partition", *names], numbers=names)
        for partition in self.found.partitions():
            cells = [self.found.offsets[what].get(partition) for what in kinds]
            shown = (output.UNKNOWN if cell is None else str(cell) for cell in cells)
            table.add_row(str(partition), *shown)
        if table.row_count:
            output.show_table(screen, table)
        count = len(self.found.partitions())
        text = f"{', '.join(self.found.files) or 'no checkpoint files'}; {count} partitions"
        _verdict(screen, self.found.problems, text)


def _verdict(screen: "Console", problems: list[str], good: str) -> None:
    for problem in problems:
        screen.print(output.verdict_line(False, problem), soft_wrap=True)
    if not problems:
        screen.print(output.verdict_line(True, good), soft_wrap=True)
