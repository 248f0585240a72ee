"""Output of `tidelog inspect epochs` and `tidelog inspect checkpoints`."""

from typing import Any, NamedTuple

from rich.console import Console

from tidelog.apps.cli import output
from tidelog.apps.log_files.checkpoint_files import OFFSET_FILES, Checkpoints, Epochs

NOTHING = "–"


class EpochsView(NamedTuple):
    """A partition's leader epochs."""

    found: Epochs

    def as_data(self) -> dict[str, Any]:
        entries = [
            {"epoch": entry.epoch, "start_offset": entry.start_offset, "end_offset": end}
            for entry, end in zip(self.found.entries, self.found.ends(), strict=True)
        ]
        return {"path": self.found.path, "epochs": entries, "problems": self.found.problems}

    def show(self, screen: Console) -> None:
        screen.print(output.heading(self.found.path))
        columns = ("epoch", "start offset", "end offset", "offsets")
        table = output.table(columns, numbers=columns)
        for entry, end in zip(self.found.entries, self.found.ends(), strict=True):
            span = NOTHING if end is None else str(end - entry.start_offset)
            last = "log end" if end is None else str(end)
            table.add_row(str(entry.epoch), str(entry.start_offset), last, span)
        if self.found.entries:
            output.show_table(screen, table)
        _verdict(screen, self.found.problems, f"{len(self.found.entries)} epochs")


class CheckpointsView(NamedTuple):
    """The checkpoints of a log directory."""

    path: str
    found: Checkpoints

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

    def show(self, screen: Console) -> None:
        screen.print(output.heading(self.path))
        for key, value in self.found.properties.items():
            screen.print(f"  {key} = {value}")
        if self.found.clean_shutdown is not None:
            epoch = self.found.clean_shutdown.get("brokerEpoch")
            note = "" if epoch is None else f", broker epoch {epoch}"
            screen.print(f"  stopped cleanly{note}")
        kinds = [what for what in OFFSET_FILES.values() if what in self.found.offsets]
        names = [what.replace("_", " ") for what in kinds]
        table = output.table(["partition", *names], numbers=names)
        for partition in self.found.partitions():
            cells = [self.found.offsets[what].get(partition) for what in kinds]
            shown = (NOTHING if cell is None else str(cell) for cell in cells)
            table.add_row(str(partition), *shown)
        if table.row_count:
            output.show_table(screen, table)
        count = len(self.found.partitions())
        text = f"{', '.join(self.found.files) or 'no checkpoint files'}; {count} partitions"
        _verdict(screen, self.found.problems, text)


def _verdict(screen: Console, problems: list[str], good: str) -> None:
    for problem in problems:
        screen.print(output.verdict_line(False, problem), soft_wrap=True)
    if not problems:
        screen.print(output.verdict_line(True, good), soft_wrap=True)
