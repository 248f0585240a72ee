"""The folders and files of a lake.

    data/topic=T/date=D/*.parquet        the records for readers
    rejected/topic=T/date=D/*.parquet    records that could not be decoded, with the reason
    _tidelog/                            the pipeline's own: commit record, staging, lock

Invariant: outside `_tidelog`, only finished files of a committed batch have a name that ends in
`.parquet`.
"""

import os

DATA, REJECTED = "data", "rejected"
OWN = "_tidelog"
PARQUET = ".parquet"
STAGED = ".staged"
"""The suffix of a file that is not committed, so that no reader opens it as Parquet."""


def own(lake: str, *names: str) -> str:
    """Return a path in the folder of the pipeline's own files."""
    return os.path.join(lake, OWN, *names)


def staging(lake: str) -> str:
    """Return the folder where tasks write files that are not committed yet."""
    return own(lake, "staging")


def commit_record(lake: str) -> str:
    """Return the path of the record that describes the last committed batch."""
    return own(lake, "committed.json")


def partition_folder(table: str, topic: str, date: str) -> str:
    """Return a folder of Parquet files, relative to the lake.

    `topic` is empty for the table of an aggregate, which has no folders by topic.
    """
    return os.path.join(table, *([f"topic={topic}"] if topic else []), f"date={date}")


def parquet_files(folder: str) -> list[str]:
    """Return the committed files below a folder, sorted."""
    found = []
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names if name.endswith(PARQUET)]
    return sorted(found)


def partition_folders(lake: str) -> list[str]:
    """Return every folder of the lake that holds files, relative to the lake, sorted."""
    folders = {
        os.path.relpath(os.path.dirname(path), lake)
        for table in (DATA, REJECTED)
        for path in parquet_files(os.path.join(lake, table))
    }
    return sorted(folders)
