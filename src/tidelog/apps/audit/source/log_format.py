"""The class that registers `format("tidelog-log")` with Spark.

Spark imports this module whenever it searches for formats. If the import fails, Spark disables
all formats written in Python. Invariant: at module level, import only Spark and the standard
library.
"""

from typing import Any

from pyspark.sql.datasource import DataSource

FORMAT = "tidelog-log"


class LogDataSource(DataSource):
    """Batch reads only: a query reads the files that exist when Spark plans it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        from tidelog.apps.audit.source.data_source import parse_options
        from tidelog.apps.audit.source.schemas import ddl

        return ddl(parse_options(dict(self.options)).level)

    def reader(self, schema: Any) -> Any:
        from tidelog.apps.audit.source.data_source import LogReader, parse_options
        from tidelog.apps.audit.source.schemas import arrow_schema

        options = parse_options(dict(self.options))
        return LogReader(options, arrow_schema(options.level, schema))
