"""The class that Spark registers for `format("tidelog")`.

Spark imports this module whenever it searches for formats. Invariant: nothing heavy is imported
before a topic is read or written.
"""

from typing import Any

from pyspark.sql.datasource import DataSource

NAME = "tidelog"


class TidelogDataSource(DataSource):
    """Reads and writes topics of a Tidelog or Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> Any:
        """The schema of a read without a schema of its own."""
        from tidelog.apps.spark.columns import topic_schema
        from tidelog.apps.spark.source.source_options import include_headers

        return topic_schema(include_headers(self._given()))

    def reader(self, schema: Any) -> Any:
        from tidelog.apps.spark.source.batch_reader import TidelogBatchReader

        return TidelogBatchReader(self._given(), schema)

    def streamReader(self, schema: Any) -> Any:
        from tidelog.apps.spark.source.stream_reader import TidelogStreamReader

        return TidelogStreamReader(self._given(), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from tidelog.apps.spark.sink.spark_writers import TidelogWriter

        return TidelogWriter(self._given(), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from tidelog.apps.spark.sink.spark_writers import TidelogStreamWriter

        return TidelogStreamWriter(self._given(), schema, overwrite)

    def _given(self) -> dict[str, str]:
        """Options as a plain dict, names in lower case."""
        return {name.lower(): str(value) for name, value in self.options.items()}


def register(spark: Any) -> None:
    """Register `format("tidelog")` in a session; needed only where Spark does not find
    `pyspark_tidelog` by itself."""
    spark.dataSource.register(TidelogDataSource)
