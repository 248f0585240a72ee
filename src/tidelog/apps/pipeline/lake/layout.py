"""Where things are in a lake.

    data/topic=T/date=D/*.parquet        what people read
    rejected/topic=T/date=D/*.parquet    what could not be decoded, and why
    _tidelog/                            the pipeline's own: commit record, staging, lock

Always true: only finished files that are part of a committed batch have a name that ends in
`.parquet` outside `_tidelog`; inside it none has.
"""

import os

DATA, REJECTED = "data", "rejected"
OWN = "_tidelog"
PARQUET = ".parquet"
STAGED = ".staged"
"""What a file that is not committed ends in: no reader takes it for Parquet."""


def own(lake: str, *names: str) -> str:
    """A path among the pipeline's own files."""
    return os.path.join(lake, OWN, *names)


def staging(lake: str) -> str:
    """Where tasks write what is not committed yet."""
    return own(lake, "staging")


def commit_record(lake: str) -> str:
    """What the last committed batch was."""
    return own(lake, "committed.json")


def partition_folder(table: str, topic: str, date: str) -> str:
    """A folder of files, from the lake on; the table of an aggregate has no topics."""
    return os.path.join(table, *([f"topic={topic}"] if topic else []), f"date={date}")


def parquet_files(folder: str) -> list[str]:
    """The committed files below a folder, sorted."""
    found = []
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names if name.endswith(PARQUET)]
    return sorted(found)


def partition_folders(lake: str) -> list[str]:
    """Every folder of the lake that holds files, from the lake on, sorted."""
    folders = {
        os.path.relpath(os.path.dirname(path), lake)
        for table in (DATA, REJECTED)
        for path in parquet_files(os.path.join(lake, table))
    }
    return sorted(folders)
