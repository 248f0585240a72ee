"""The class that Spark registers for `format("tidelog")`.

Spark imports this module whenever it searches for formats. Invariant: pyarrow, numpy and the client
are imported only when a topic is read or written.
"""

from typing import Any

from pyspark.sql.datasource import DataSource

NAME = "tidelog"
_REDACTED = "spark.sql.redaction.options.regex"
_REDACTED_BY_SPARK = "(?i)url"
"""Spark's default; a value of the user's own stays."""


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
    """Register `format("tidelog")` in a session, so that queries can start at the same time.

    Plans and the UI of the session then show no inline private keys: Spark by itself hides options
    by words such as `password` only.

    Each streaming query adds the same variables to the environment that Spark keeps with the
    registered class. Spark keeps it in a HashMap, without a lock, and sends it with every task. Two
    queries that add a variable at the same time can both count it; then each task fails with
    OptionalDataException. So this function registers the class with a ConcurrentHashMap.

    Spark Connect runs queries in another process, so there Spark's own registration remains.
    """
    from pyspark.sql.utils import is_remote

    _hide_secrets(spark)
    if is_remote():
        spark.dataSource.register(TidelogDataSource)
        return
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    java = context._jvm.java.util.concurrent  # noqa: SLF001 - Python has no API for it
    spark_sql = context._jvm.org.apache.spark.sql.execution  # noqa: SLF001
    plain = _wrap_function(context, TidelogDataSource)
    function = plain.copy(
        plain.command(),
        java.ConcurrentHashMap(plain.envVars()),
        plain.pythonIncludes(),
        plain.pythonExec(),
        plain.pythonVer(),
        plain.broadcastVars(),
        plain.accumulator(),
    )
    source = spark_sql.datasources.v2.python.UserDefinedPythonDataSource(function)
    spark._jsparkSession.dataSource().registerPython(NAME, source)  # noqa: SLF001


def _hide_secrets(spark: Any) -> None:
    from tidelog.apps.spark.security_options import SECRET_NAMES

    if spark.conf.get(_REDACTED, _REDACTED_BY_SPARK) == _REDACTED_BY_SPARK:
        spark.conf.set(_REDACTED, f"{_REDACTED_BY_SPARK}|{SECRET_NAMES}")
