"""The Spark job of the demo, in a process of its own: lands and aggregates until told to stop.

Two pipelines on one session: orders to Parquet, and sums by shop and window to a table and a
topic. What happens goes to stdout, one JSON object a line; orders come on stdin the same way:
`stop` ends the pipelines, `audit` reads the brokers' folders, `end` or the end of the input ends
the process.
"""

import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from traceback import print_exc
from typing import Any, TextIO

from tidelog.apps.demo import orders
from tidelog.apps.demo.lean_home import lean_home
from tidelog.apps.pipeline.failure import said
from tidelog.apps.pipeline.plan import AggregatePlan, Decode, LandPlan, Origin
from tidelog.apps.pipeline.report import Progress

SCHEMA = "number long, shop string, cents long"
TRIGGER = "500 milliseconds"
MASTER = "local[2,4]"
"""A task that is lost is tried again, as on a cluster; `local[2]` would give up."""
END_S = 10.0
SETTINGS = {
    # It runs for a minute: code that starts soon is worth more than code that is fast later.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    # Should a Python worker crash, the log says where.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}

Send = Callable[..., None]


def main() -> None:
    """`python -c ... BOOTSTRAP WORK`."""
    bootstrap, work = sys.argv[1:3]
    send = _sender(_own_stdout())
    inbox = _Inbox(sys.stdin)
    try:
        _serve(bootstrap, work, send, inbox)
    except Exception as error:
        send("failed", why=said(error))
        raise


def land_plan(bootstrap: str, work: str) -> LandPlan:
    """Orders to Parquet, as they are and as columns."""
    return LandPlan(
        name="land",
        bootstrap=bootstrap,
        origin=Origin((orders.TOPIC,)),
        checkpoint=os.path.join(work, "checkpoints", "land"),
        path=os.path.join(work, "lake"),
        trigger=TRIGGER,
        decode=Decode("json", SCHEMA),
    )


def sums_plan(bootstrap: str, work: str) -> AggregatePlan:
    """Orders and cents by shop and window, to a table and a topic."""
    return AggregatePlan(
        name="sums",
        bootstrap=bootstrap,
        origin=Origin((orders.TOPIC,)),
        checkpoint=os.path.join(work, "checkpoints", "sums"),
        window=f"{orders.WINDOW_MS} milliseconds",
        watermark=f"{orders.LATE_MS} milliseconds",
        group_by=("shop",),
        columns={"orders": "count(*)", "cents": "sum(cents)"},
        table=os.path.join(work, "sums"),
        topic=orders.SUMS_TOPIC,
        trigger=TRIGGER,
        decode=Decode("json", SCHEMA),
    )


def _serve(bootstrap: str, work: str, send: Send, inbox: "_Inbox") -> None:
    from tidelog.apps.spark.session import spark_session

    local = {
        "spark.local.dir": os.path.join(work, "local"),
        "spark.sql.warehouse.dir": os.path.join(work, "warehouse"),
    }
    home = lean_home(work)
    if home is not None:
        os.environ.setdefault("SPARK_HOME", home)
    spark = spark_session("tidelog-demo", MASTER, {**SETTINGS, **local})
    spark.sparkContext.setLogLevel("WARN")
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - a query for it would cost seconds
    java = jvm.System.getProperty("java.version")
    send("session", spark=spark.version, java=java, python=platform.python_version())
    stop = threading.Event()
    pipelines = _start(spark, bootstrap, work, stop, send)
    while (order := inbox.next()) is not None:
        if order["do"] == "stop":
            stop.set()
            for pipeline in pipelines:
                pipeline.join()
            send("stopped")
        elif order["do"] == "audit":
            _audit(spark, order["folders"], send)
        else:
            break
    stop.set()
    inbox.end_by_force(END_S)
    spark.stop()


def _start(
    spark: Any, bootstrap: str, work: str, stop: threading.Event, send: Send
) -> list[threading.Thread]:
    from tidelog.apps.pipeline.aggregate import aggregate
    from tidelog.apps.pipeline.land import land

    def tell(query: str) -> Callable[[Progress], None]:
        return lambda progress: send("batch", query=query, **progress.__dict__)

    def run(what: Callable[..., object], plan: LandPlan | AggregatePlan) -> None:
        try:
            what(spark, plan, stop, tell(plan.name))
        except Exception as error:  # noqa: BLE001 - told to the demo, which ends
            send("failed", why=f"{plan.name}: {said(error)}")
            print_exc()

    threads = [
        threading.Thread(target=run, args=(land, land_plan(bootstrap, work)), daemon=True),
        threading.Thread(target=run, args=(aggregate, sums_plan(bootstrap, work)), daemon=True),
    ]
    for thread in threads:
        thread.start()
    return threads


def _audit(spark: Any, folders: list[str], send: Send) -> None:
    from tidelog.apps.audit.run import audit

    began = time.monotonic()
    report = audit(spark, folders)
    send("audit", report=report.as_data(), took_s=time.monotonic() - began)


class _Inbox:
    """Orders as they come; the end of the input ends the process, whatever it does."""

    def __init__(self, source: TextIO) -> None:
        self._orders: list[dict[str, Any] | None] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._thread.start()

    def next(self) -> dict[str, Any] | None:
        """The next order; None: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._orders)
            return self._orders.pop(0)

    def end_by_force(self, after_s: float) -> None:
        """Spark may hang when it stops; its JVM is in our group of processes."""
        timer = threading.Timer(after_s, lambda: os.killpg(0, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def _read(self, source: TextIO) -> None:
        for line in source:
            self._put(json.loads(line))
        self._put(None)
        self.end_by_force(END_S)

    def _put(self, order: dict[str, Any] | None) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify()


def _own_stdout() -> TextIO:
    """Stdout for our lines alone; what Spark and its children print goes to stderr."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


def _sender(out: TextIO) -> Send:
    lock = threading.Lock()

    def send(event: str, **details: object) -> None:
        with lock:
            out.write(json.dumps({"event": event, **details}) + "\n")
            out.flush()

    return send
