"""One side of the comparison: a Spark session in an environment of its own, and its jobs.

    python spark_worker.py tidelog|kafka OPTIONS      OPTIONS: JSON with master, heap, JVM options

It runs in two environments, so it imports Tidelog only on Tidelog's side. It reads jobs as JSON
lines, and writes a result after each job. Between jobs the process is idle.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

OURS = "tidelog"
QUERIES = {
    "sum": lambda frame: frame.selectExpr("sum(length(value)) total", "count(1) rows").collect()[0],
    "all columns": lambda frame: frame.write.format("noop").mode("overwrite").save(),
}
VALUE = "cast(rpad(cast(id AS string), {size}, 'tidelog ') AS binary) value"
FIRST_BATCHES = 10
"""The first batches of a stream, which are not counted."""


class Side:
    """A Spark session and the jobs that it can run."""

    def __init__(self, name: str, given: dict[str, Any]) -> None:
        self.format = name
        settings = {"spark.driver.memory": given["heap"], **given["settings"]}
        settings["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
        if name == OURS:
            import tidelog.spark
            from tidelog.apps.spark.session import spark_session

            self.spark = spark_session("bench", given["master"], settings)
            tidelog.spark.register(self.spark)
        else:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.appName("bench").master(given["master"])
            for key, value in settings.items():
                builder = builder.config(key, value)
            self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def read(self, options: dict[str, str], query: str, schema: str = "") -> dict[str, Any]:
        """Run a batch query; return its seconds and its result."""
        began = time.monotonic()
        reader = self.spark.read.format(self.format).options(**options)
        if schema and self.format == OURS:
            reader = reader.schema(schema)
        found = QUERIES[query](reader.load())
        seconds = time.monotonic() - began
        return {"seconds": seconds, "found": found.asDict() if found is not None else None}

    def stream(self, options: dict[str, str], batches: int) -> dict[str, Any]:
        """Run micro-batches into the noop sink; return their figures without the first ones."""
        with tempfile.TemporaryDirectory() as folder:
            frame = self.spark.readStream.format(self.format).options(**options).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
            query = writer.start()
            # Only the last progress: to read all of them each time costs more than the stream.
            while query.exception() is None:
                last = query.lastProgress
                if last is not None and last["batchId"] >= batches + FIRST_BATCHES:
                    break
                time.sleep(0.2)
            if query.exception() is not None:
                raise query.exception()
            query.stop()
            counted = query.recentProgress[FIRST_BATCHES : FIRST_BATCHES + batches]
        took = [progress["durationMs"]["triggerExecution"] for progress in counted]
        tenth = statistics.quantiles(took, n=10, method="inclusive")[0]
        rows = sorted({progress["numInputRows"] for progress in counted})
        parts = {
            part: statistics.median([p["durationMs"].get(part, 0) for p in counted])
            for part in sorted(counted[0]["durationMs"])
        }
        return {"median_ms": statistics.median(took), "p10_ms": tenth, "rows": rows, "parts": parts}

    def write(self, options: dict[str, str], rows: int, size: int, tasks: int) -> dict[str, Any]:
        """Write generated rows to a topic in a batch job."""
        frame = self.spark.range(0, rows, 1, tasks)
        frame = frame.selectExpr("cast(cast(id AS string) AS binary) key", VALUE.format(size=size))
        began = time.monotonic()
        frame.write.format(self.format).options(**options).mode("append").save()
        return {"seconds": time.monotonic() - began}


def main() -> None:
    # Keep the output of Spark out of the results: it goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    side = Side(sys.argv[1], json.loads(sys.argv[2]))
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(side, asked["job"])(**asked["with"])
        except Exception as error:  # noqa: BLE001 -- sent to the caller
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        answers.write(json.dumps(answer) + "\n")
    side.spark.stop()


if __name__ == "__main__":
    main()
