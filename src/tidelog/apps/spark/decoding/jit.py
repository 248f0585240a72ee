"""Compile kernels to machine code, and cache the code between processes.

A kernel works on addresses: it loads and stores bytes itself and checks every bound itself.
Compiling takes seconds, so the result is cached: beside the source, else in the user's cache
folder, else in a private folder in the temporary one, else not at all.

Cached code is recompiled only when the file of its kernel changes. So a kernel and the constants
that it shares with Python must be in one file.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def compiled(signature: str | None = None) -> Callable[[F], F]:
    """Compile a function to machine code: at once with a signature, else at its first call."""

    def decorate(function: F) -> F:
        options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
        arguments = () if signature is None else (signature,)
        try:
            return numba.njit(*arguments, cache=True, **options)(function)
        except RuntimeError:
            # numba found no cache folder; it raises this before it compiles.
            kept = _private_folder()
        if kept is not None:
            numba.config.CACHE_DIR = kept
        return numba.njit(*arguments, cache=kept is not None, **options)(function)

    return decorate


def _private_folder() -> str | None:
    """Return a folder that no other user can write to, because its files are executed."""
    folder = os.path.join(tempfile.gettempdir(), f"tidelog-numba-{os.getuid()}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if private and found.st_uid == os.getuid() else None


@intrinsic
def load8(_context: Any, _address: Any) -> Any:
    """Return the byte at an address."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), _WORD)

    return types.int64(types.int64), generate


@intrinsic
def load32(_context: Any, _address: Any) -> Any:
    """Return the signed 32-bit number at an address."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(pointer, align=1), _WORD)

    return types.int64(types.int64), generate


@intrinsic
def store8(_context: Any, _address: Any, _value: Any) -> Any:
    """Write the low byte of a number to an address."""
    return types.void(types.int64, types.int64), _storing(8)


@intrinsic
def store32(_context: Any, _address: Any, _value: Any) -> Any:
    """Write the low 32 bits of a number to an address."""
    return types.void(types.int64, types.int64), _storing(32)


@intrinsic
def store64(_context: Any, _address: Any, _value: Any) -> Any:
    """Write a number to an address."""
    return types.void(types.int64, types.int64), _storing(64)


@intrinsic
def copy(_context: Any, _target: Any, _source: Any, _size: Any) -> Any:
    """Copy bytes from one address to another; they must not overlap."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        source = builder.inttoptr(arguments[1], _BYTE.as_pointer())
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return _target.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _storing(bits: int) -> Callable[..., Any]:
    kind = ir.IntType(bits)

    def generate(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        value = arguments[1] if bits == 64 else builder.trunc(arguments[1], kind)
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.store(value, pointer, align=1)
        return target.get_dummy_value()

    return generate
