"""A sink that writes each batch to its own folder; a replayed batch replaces its folder."""

from collections.abc import Callable
from typing import Any


def write_batches(out: str) -> Callable[[Any, int], None]:
    """Return a function for `foreachBatch`."""

    def write(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(f"{out}/batch={batch}")

    return write
