"""A sink of folders, one for each batch: a batch that is written again takes its own place."""

from collections.abc import Callable
from typing import Any


def write_batches(out: str) -> Callable[[Any, int], None]:
    """For `foreachBatch`."""

    def write(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(f"{out}/batch={batch}")

    return write
