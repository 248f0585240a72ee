"""CRC-32C from the C extension of the `crc32c` package, without importing the package.

Its `__init__` reads its version through importlib.metadata, which takes longer than the rest of a
broker's startup. So only the C extension is loaded; if there is none, the package is imported.
"""

from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Checksum(Protocol):
    """CRC-32C of `data`, continuing from `value`."""

    def __call__(self, data: Buffer, value: int = 0) -> int: ...


def load(search_path: Sequence[str] | None = None) -> Checksum:
    """Return the checksum function; `search_path` replaces the import path if given."""
    package = PathFinder.find_spec("crc32c", search_path)
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            checksum: Checksum = module.crc32c
            return checksum
    from crc32c import crc32c as packaged

    return packaged


crc32c: Checksum = load()
