"""Found by Spark by its name: registers `format("tidelog-log")` where tidelog is installed."""

from tidelog.apps.audit.source.log_format import LogDataSource

DefaultSource = LogDataSource
