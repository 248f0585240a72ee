"""Files and folders for the broker's own user only.

Records and the cluster's secret are private, whatever the umask: a broker makes folders with mode
0700 and files with 0600. An existing folder keeps its mode, which an operator may have chosen;
a broker warns if every user of the machine can open it.
"""

import os

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = 0o007
_OTHERS_ENTER = 0o001


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, all private."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileNotFoundError:
        make_folders(os.path.dirname(os.path.abspath(path)))
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def warning_if_open(path: str) -> str | None:
    """A warning if every user of the machine can open this path; else None."""
    path = os.path.realpath(path)
    mode = os.stat(path).st_mode & 0o777
    above = os.path.dirname(path)
    while mode & _OTHERS and os.stat(above).st_mode & _OTHERS_ENTER:
        if above == os.path.dirname(above):
            closed = FOLDER_MODE if os.path.isdir(path) else FILE_MODE
            return (
                f"{path} is open to all users of this machine (mode {mode:o});"
                f" run: chmod {closed:o} {path}"
            )
        above = os.path.dirname(above)
    return None
