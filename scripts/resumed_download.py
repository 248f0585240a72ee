"""Download a large file over HTTP; resume after a broken connection, and check its hash.

The received bytes are in `<file>.part`. A failed try keeps them, unless the complete file has a
wrong hash. So a later try requests only the rest.

Invariant: the file itself exists only if its SHA-256 is right.
"""

import hashlib
import http.client
import shutil
import sys
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CHUNK = 1 << 18
TRIES = 6
"""Consecutive tries without new data, after which the download fails."""
PAUSE_S, PAUSE_MAX_S = 1.0, 20.0
REPORT_EVERY_S = 5.0
CUT = (OSError, http.client.HTTPException)
"""A broken connection, a time-out or an HTTP error; a retry may succeed."""
FINAL = (401, 403, 404, 407, 410)

Open = Callable[[str, int], Any]


class NotDownloaded(Exception):
    """The message is one line that says what failed and what to do next."""


class Wanted(NamedTuple):
    """The expected name, size and hash of a file."""

    name: str
    size: int
    sha256: str


class Progress:
    """The progress of a download: one line on a terminal, elsewhere a line every few seconds."""

    def __init__(self, wanted: Wanted, done: int) -> None:
        self._wanted, self._at_first = wanted, done
        self._began = self._shown_at = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def show(self, done: int, now: bool = False) -> None:
        clock = time.monotonic()
        if not now and clock - self._shown_at < (0.2 if self._terminal else REPORT_EVERY_S):
            return
        self._shown_at = clock
        rate = max(done - self._at_first, 0) / max(clock - self._began, 1e-6)
        share = 100 * done // max(self._wanted.size, 1)
        line = f"{self._wanted.name}: {_mb(done)} of {_mb(self._wanted.size)} MB ({share} %)"
        line += f", {rate / 1e6:.1f} MB/s"
        end = "\r" if self._terminal and not now else "\n"
        sys.stderr.write(f"{line:<70}{end}")
        sys.stderr.flush()


def download(find: Callable[[], str], open_at: Open, wanted: Wanted, folder: Path) -> Path:
    """Download the file into the folder; return its path.

    Each try calls `find` for the address.
    """
    target, part = folder / wanted.name, folder / f"{wanted.name}.part"
    if target.exists():
        return target
    room = shutil.disk_usage(folder).free
    missing = wanted.size - _size(part)
    if room < missing:
        raise NotDownloaded(
            f"{folder} has {_mb(room)} MB free, and {wanted.name} needs {_mb(missing)} MB:"
            " free some space, or name another folder in TIDELOG_WHEELS"
        )
    for attempt in (1, 2):
        _receive(find, open_at, wanted, part)
        if sha256(part) == wanted.sha256:
            part.replace(target)
            return target
        part.unlink()
        if attempt == 1:
            sys.stderr.write(f"{wanted.name} has a wrong SHA-256; downloading it again\n")
    raise NotDownloaded(
        f"{wanted.name} was downloaded twice, with another SHA-256 than the pinned one; nothing is"
        " kept: check the package index in pip's settings"
    )


def _receive(find: Callable[[], str], open_at: Open, wanted: Wanted, part: Path) -> None:
    """Receive all bytes into the part file; fail after several tries without new data."""
    idle = 0
    progress = Progress(wanted, _size(part))
    while True:
        before = _size(part)
        if before >= wanted.size:
            progress.show(before, now=True)
            return
        try:
            _receive_once(open_at, find(), part, progress)
            failure: Exception = ConnectionError("the connection ended early")
        except CUT as error:
            failure = error
        except KeyboardInterrupt:
            raise NotDownloaded(f"interrupted; the received bytes are kept in {part}") from None
        if _size(part) >= wanted.size:
            continue
        idle = 0 if _size(part) > before else idle + 1
        refused = isinstance(failure, urllib.error.HTTPError) and failure.code in FINAL
        if refused or idle == TRIES:
            raise NotDownloaded(
                f"cannot download {wanted.name}: {_reason(failure)}; the received bytes are kept"
                f" ({_mb(_size(part))} of {_mb(wanted.size)} MB): run the same command again later"
            )
        pause = min(PAUSE_S * 2 ** max(idle - 1, 0), PAUSE_MAX_S)
        sys.stderr.write(
            f"{wanted.name}: {_reason(failure)}; resuming at {_mb(_size(part))} MB in {pause:g} s\n"
        )
        time.sleep(pause)


def _receive_once(open_at: Open, url: str, part: Path, progress: Progress) -> None:
    begin = _size(part)
    with open_at(url, begin) as response:
        resumed = begin > 0 and response.status == http.client.PARTIAL_CONTENT
        # A server that does not support ranges sends the whole file.
        with part.open("ab" if resumed else "wb") as out:
            done = begin if resumed else 0
            while chunk := response.read(CHUNK):
                try:
                    out.write(chunk)
                    out.flush()
                except OSError as error:
                    raise NotDownloaded(f"cannot write {part}: {error.strerror}") from None
                done += len(chunk)
                progress.show(done)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return str(error.reason)
    return str(error) or type(error).__name__


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f}" if count >= 1e7 else f"{count / 1e6:.3g}"
