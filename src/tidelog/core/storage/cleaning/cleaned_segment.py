"""The files that a cleaning writes: a segment's, named `.cleaned` until they are put in place."""

from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.segment.segment import Segment


class CleanedSegment(Segment):
    """A segment beside the log. It is made with `create`."""

    __slots__ = ()

    def file(self, kind: str) -> str:
        return super().file(kind) + layout.CLEANED_SUFFIX

    def sync(self) -> None:
        """Put the files on disk, then their names."""
        files = [self.file(kind) for kind in layout.SEGMENT_KINDS]
        self._disk.sync_many([path for path in files if self._disk.exists(path)], [])
        self._disk.sync_dir(self.directory)


def remove_leftovers(disk: Disk, directory: str) -> None:
    """Take away what an earlier cleaning wrote and nobody put in place."""
    for name in disk.list_dir(directory):
        if name.endswith(layout.CLEANED_SUFFIX):
            disk.delete(f"{directory}/{name}")
