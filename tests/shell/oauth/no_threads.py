"""A system that starts no thread, as one at its limit of processes does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_new_threads() -> Iterator[None]:
    """Let the system refuse each new thread: no address space has room for such a stack."""
    before = threading.stack_size(1 << 50)
    try:
        yield
    finally:
        threading.stack_size(before)
