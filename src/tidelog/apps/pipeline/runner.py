"""A pipeline as a command runs it: a Spark of its own, signals, and the same three functions.

Always true: SIGINT and SIGTERM reach this process alone, not Spark's (which would lose its
workers in the middle of a batch); a second one ends without waiting.
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
from tidelog.apps.pipeline.report import Report, Tell

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_TRACES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark logs each exception that it raises, plan and Java's trace included."""


@contextmanager
def own_spark(
    name: str, master: str, settings: Mapping[str, str], log: str | None
) -> Iterator[Any]:
    """A session whose processes hear no signal of ours; its log goes to a file if one is named.
    Raises NoJava, CannotStart."""
    from tidelog.apps.spark.session import find_java, settle_environment, spark_session

    find_java()
    settle_environment(master)  # else Java would plan with whatever python3 there is
    with open(log or os.devnull, "ab") as file, _traces_in(log):
        try:
            _start_java(settings, file if log else None)
            spark = spark_session(name, master, settings)
        except ModuleNotFoundError:
            raise
        except Exception as error:
            raise CannotStart(f"Spark does not start: {reason(error)}") from error
        try:
            _suit_shuffles(spark, master)
            yield spark
        finally:
            spark.stop()


def _suit_shuffles(spark: Any, master: str) -> None:
    """One task for each core, where nobody asked for a number: Spark's 200 are for clusters, and
    each costs a micro-batch its time. A query that has a checkpoint keeps the number it has."""
    context = spark.sparkContext
    if master.startswith("local") and not context.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, context.defaultParallelism)


@contextmanager
def _traces_in(log: str | None) -> Iterator[None]:
    """PySpark's own log of exceptions goes to the file, not to stderr."""
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
    # What a JVM takes only when it starts.
    conf.set("spark.driver.extraJavaOptions", JVM_OPTIONS)
    for key, value in settings.items():
        conf.set(key, value)
    streams = {"stdout": log, "stderr": log} if log is not None else {}
    SparkContext._ensure_initialized(  # noqa: SLF001 - PySpark has no other door to `Popen`
        gateway=launch_gateway(conf, {"start_new_session": True, **streams})
    )


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()

    def hear(number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        signal.signal(number, hear)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_plan(spark: Any, plan: Plan, stop: threading.Event, tell: Tell) -> Report:
    """Run a plan of any kind."""
    if isinstance(plan, LandPlan):
        from tidelog.apps.pipeline.land import land

        return land(spark, plan, stop, tell)
    if isinstance(plan, AggregatePlan):
        from tidelog.apps.pipeline.aggregate import aggregate

        return aggregate(spark, plan, stop, tell)
    from tidelog.apps.pipeline.backfill import backfill

    return backfill(spark, plan, stop, tell)
