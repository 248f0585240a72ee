"""The class of `format("tidelog-log")` that Spark meets.

Spark imports this to look for formats, whether it will use it or not, and gives up on all
formats in Python if that fails. Always true: nothing is imported here that may be missing
beside Spark.
"""

from typing import Any

from pyspark.sql.datasource import DataSource

FORMAT = "tidelog-log"


class LogDataSource(DataSource):
    """Batch reads only: a log directory that changes is read as it is when it is planned."""

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
