"""The class that Spark registers for `format("tidelog")`.

Spark imports this module whenever it searches for formats. Invariant: pyarrow, numpy and the client
are imported only when a topic is read or written.
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
        """Return the schema of a read for which the user gave none."""
        from tidelog.apps.spark.columns import topic_schema
        from tidelog.apps.spark.source.source_options import include_headers

        return topic_schema(include_headers(self._lower_case_options()))

    def reader(self, schema: Any) -> Any:
        from tidelog.apps.spark.source.batch_reader import TidelogBatchReader

        return TidelogBatchReader(self._lower_case_options(), schema)

    def streamReader(self, schema: Any) -> Any:
        from tidelog.apps.spark.source.stream_reader import TidelogStreamReader

        return TidelogStreamReader(self._lower_case_options(), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from tidelog.apps.spark.sink.spark_writers import TidelogWriter

        return TidelogWriter(self._lower_case_options(), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from tidelog.apps.spark.sink.spark_writers import TidelogStreamWriter

        return TidelogStreamWriter(self._lower_case_options(), schema, overwrite)

    def _lower_case_options(self) -> dict[str, str]:
        """Return the options as a plain dict, with names in lower case."""
        return {name.lower(): str(value) for name, value in self.options.items()}


def register(spark: Any) -> None:
    """Register `format("tidelog")` in a session.

    This is needed only where Spark does not find the package `pyspark_tidelog` itself.
    """
    spark.dataSource.register(TidelogDataSource)
