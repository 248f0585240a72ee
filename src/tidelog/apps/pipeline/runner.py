"""Run a pipeline as a command: start a Spark session, handle signals, call the pipeline's function.

Invariants: SIGINT and SIGTERM reach only this process, not Spark's processes; otherwise Spark
would lose its workers in the middle of a batch. A second signal ends the run without waiting.
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidelog.apps.pipeline.failure import CannotStart, reason
from tidelog.apps.pipeline.plan import AggregatePlan, LandPlan, Plan
from tidelog.apps.pipeline.report import OnProgress, Report

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_TRACES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers to which PySpark writes each exception it raises, with the plan and Java's trace."""


@contextmanager
def own_spark(
    name: str, master: str, settings: Mapping[str, str], log: str | None
) -> Iterator[Any]:
    """Start a Spark session whose processes do not receive the signals sent to this process.

    Spark's log goes to the file `log`, if given. Raises NoJava, CannotStart.
    """
    from tidelog.apps.spark.session import find_java, settle_environment, spark_session

    find_java()
    settle_environment(master)  # otherwise Java would use any python3 on the path
    with open(log or os.devnull, "ab") as file, _log_traces_to(log):
        try:
            _start_java(settings, file if log else None)
            spark = spark_session(name, master, settings)
        except ModuleNotFoundError:
            raise
        except Exception as error:
            raise CannotStart(f"cannot start Spark: {reason(error)}") from error
        try:
            _reduce_shuffles(spark, master)
            yield spark
        finally:
            spark.stop()


def _reduce_shuffles(spark: Any, master: str) -> None:
    """Use one shuffle task per core in local mode, unless the user configured a number.

    Spark's default of 200 is meant for clusters, and each task adds time to a micro-batch. A query
    that has a checkpoint keeps its number.
    """
    context = spark.sparkContext
    if master.startswith("local") and not context.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, context.defaultParallelism)


@contextmanager
def _log_traces_to(log: str | None) -> Iterator[None]:
    """Send PySpark's log of exceptions to the file instead of stderr."""
    if log is None:
        yield
        return
    from pyspark.logger import PySparkLogger

    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    loggers = [PySparkLogger.getLogger(name) for name in _TRACES]
    before = [list(logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.handlers.clear()
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, handlers in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
        handler.close()


def _start_java(settings: Mapping[str, str], log: Any) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    from tidelog.apps.spark.session import JVM_OPTIONS

    conf = SparkConf(loadDefaults=False)
    # Options that a JVM accepts only at startup.
    conf.set("spark.driver.extraJavaOptions", JVM_OPTIONS)
    for key, value in settings.items():
        conf.set(key, value)
    streams = {"stdout": log, "stderr": log} if log is not None else {}
    SparkContext._ensure_initialized(  # noqa: SLF001 - the only way to set `Popen` options
        gateway=launch_gateway(conf, {"start_new_session": True, **streams})
    )


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Provide an event that SIGINT and SIGTERM set."""
    stop = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        signal.signal(number, on_signal)

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_plan(spark: Any, plan: Plan, stop: threading.Event, on_progress: OnProgress) -> Report:
    """Run a plan of any kind."""
    if isinstance(plan, LandPlan):
        from tidelog.apps.pipeline.land import land

        return land(spark, plan, stop, on_progress)
    if isinstance(plan, AggregatePlan):
        from tidelog.apps.pipeline.aggregate import aggregate

        return aggregate(spark, plan, stop, on_progress)
    from tidelog.apps.pipeline.backfill import backfill

    return backfill(spark, plan, stop, on_progress)
