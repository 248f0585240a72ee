"""A program for the environment of Spark's own connector: jobs and results as lines of JSON.

It imports only PySpark, not Tidelog. Bytes are hexadecimal text.
"""

import json
import os
import sys
from typing import Any

FORMAT = "kafka"
ROW = "struct<key:string,value:string,partition:int,headers:array<struct<key:string,value:string>>>"


def columns(frame: Any) -> Any:
    """Convert rows to values that JSON has, with every column of the source."""
    shown = ["hex(key) key", "hex(value) value", "topic", "partition", "offset", "timestampType"]
    shown.append("unix_millis(timestamp) timestamp")
    if "headers" in frame.columns:
        shown.append("transform(headers, h -> struct(h.key, hex(h.value) AS value)) headers")
    return frame.selectExpr(*shown)


class Jobs:
    """One session; each method is a job."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        builder = SparkSession.builder.master("local[2]").appName("connector")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.query: Any = None
        self.schema: Any = None

    def read(self, options: dict[str, str]) -> list[dict[str, Any]]:
        frame = self.spark.read.format(FORMAT).options(**options).load()
        rows = columns(frame).collect()
        return [row.asDict(recursive=True) for row in rows]

    def write(self, options: dict[str, str], rows: list[dict[str, Any]]) -> None:
        """Write rows with key, value, partition and headers."""
        lines = [(json.dumps(row),) for row in rows]
        frame = self.spark.createDataFrame(lines, "line string")
        picked = frame.selectExpr(f"from_json(line, '{ROW}') r").selectExpr(
            "unhex(r.key) key",
            "unhex(r.value) value",
            "r.partition partition",
            "transform(r.headers, h -> struct(h.key AS key, unhex(h.value) AS value)) headers",
        )
        picked.write.format(FORMAT).options(**options).save()

    def _stream(self, options: dict[str, str], folder: str) -> Any:
        frame = columns(self.spark.readStream.format(FORMAT).options(**options).load())
        self.schema = frame.schema
        target = {"path": f"{folder}/rows", "checkpointLocation": f"{folder}/checkpoint"}
        return frame.writeStream.format("parquet").options(**target)

    def stream_what_is_there(self, options: dict[str, str], folder: str) -> list[int]:
        """Stream all records to a table; return the row count of each micro-batch."""
        query = self._stream(options, folder).trigger(availableNow=True).start()
        query.awaitTermination(90)
        if query.isActive:
            query.stop()
            raise TimeoutError("the stream did not come to its end")
        return [progress["numInputRows"] for progress in query.recentProgress]

    def start_stream(self, options: dict[str, str], folder: str) -> None:
        self.query = (
            self._stream(options, folder).trigger(processingTime="200 milliseconds").start()
        )

    def start_copy(self, source: dict[str, str], sink: dict[str, str], folder: str) -> None:
        """Start a stream that copies a topic to another, with headers."""
        frame = self.spark.readStream.format(FORMAT).options(**source).load()
        picked = frame.select("key", "value", "partition", "headers")
        written = picked.writeStream.format(FORMAT).options(**sink)
        written = written.option("checkpointLocation", f"{folder}/checkpoint")
        self.query = written.trigger(processingTime="200 milliseconds").start()

    def rows_of_stream(self, folder: str) -> list[dict[str, Any]]:
        """Return the current rows of the table."""
        if self.query is not None and self.query.exception() is not None:
            raise self.query.exception()
        if not os.path.exists(f"{folder}/rows/_spark_metadata"):
            return []
        rows = self.spark.read.schema(self.schema).parquet(f"{folder}/rows").collect()
        return [row.asDict(recursive=True) for row in rows]

    def stop_stream(self) -> None:
        trouble = self.query.exception()
        self.query.stop()
        self.query = None
        if trouble is not None:
            raise trouble


def main() -> None:
    # Whatever Spark prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    jobs = Jobs()
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"result": getattr(jobs, asked["job"])(**asked["with"])}
        except Exception as error:  # noqa: BLE001 -- told to whoever asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    jobs.spark.stop()


if __name__ == "__main__":
    main()
