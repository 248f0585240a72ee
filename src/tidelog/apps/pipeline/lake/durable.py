"""Atomic and durable file operations: after a power failure a file is complete or missing.

Invariant: the changes of `write_json`, `make_folder` and `exchange` are on the disk when these
functions return.
"""

import ctypes
import errno
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
"""Linux's RENAME_EXCHANGE and macOS's RENAME_SWAP are the same number."""


class CannotExchange(Exception):
    """The operating system or file system cannot exchange two folders atomically."""


class LockTaken(Exception):
    """Another process holds the lock."""


@contextmanager
def file_lock(path: str) -> Iterator[None]:
    """Hold a file lock; the operating system releases it if the process ends. Raises LockTaken."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockTaken(path) from None
        yield
    finally:
        os.close(lock)


def sync_folder(path: str) -> None:
    """Make the directory entries of a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sync_file(path: str) -> None:
    """Make a file's bytes durable."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def make_folder(path: str) -> None:
    """Create a folder and its missing parents, durably."""
    missing = []
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.makedirs(folder, exist_ok=True)
        sync_folder(os.path.dirname(folder))


def write_json(path: str, data: Mapping[str, Any]) -> None:
    """Replace a JSON document atomically."""
    beside = f"{path}.new"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(os.path.dirname(path))


def read_json(path: str) -> dict[str, Any] | None:
    """Return a JSON document; None if the file does not exist."""
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return found


def exchange(one: str, other: str) -> None:
    """Exchange two folders atomically. Raises CannotExchange."""
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = libc.renamex_np(first, second, _RENAME_EXCHANGE)
        else:
            failed = libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    except AttributeError:
        raise CannotExchange("the C library has no function that exchanges two folders") from None
    if failed:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise CannotExchange(f"the file system of {one} can't exchange two folders")
        raise OSError(number, os.strerror(number), one)
    for path in (one, other):
        sync_folder(os.path.dirname(path))
