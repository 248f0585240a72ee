"""The Spark job of the demo, in a separate process: land and aggregate until a stop command.

Two pipelines share one session: orders to Parquet, and sums by shop and window to a table and a
topic. The job writes events to stdout, one JSON object per line. It reads commands from stdin in
the same format: `stop` ends the pipelines, `audit` reads the brokers' folders, and `end` or the
end of the input ends the process.
"""

import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from traceback import print_exc
from typing import Any, TextIO

from tidelog.apps.demo import orders
from tidelog.apps.pipeline.failure import cause
from tidelog.apps.pipeline.plan import AggregatePlan, Decode, LandPlan, Origin
from tidelog.apps.pipeline.report import Progress

SCHEMA = "number long, shop string, cents long"
TRIGGER = "500 milliseconds"
MASTER = "local[2,4]"
"""Retry a lost task, as on a cluster (up to 4 attempts); `local[2]` would fail at once."""
END_S = 10.0
SETTINGS = {
    # The job runs for a minute, so a fast start matters more than fast code later.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    # If a Python worker crashes, the log shows where.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}

Send = Callable[..., None]


def main() -> None:
    """Run the job; the arguments are BOOTSTRAP and WORK, the work folder."""
    bootstrap, work = sys.argv[1:3]
    send = _sender(_own_stdout())
    inbox = _Inbox(sys.stdin)
    try:
        _serve(bootstrap, work, send, inbox)
    except Exception as error:
        send("failed", why=cause(error))
        raise


def land_plan(bootstrap: str, work: str) -> LandPlan:
    """Return the plan that lands orders in Parquet, as raw values and as columns."""
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
    """Return the plan that sums orders and cents by shop and window, to a table and a topic."""
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
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - a query for the version would take seconds
    java = jvm.System.getProperty("java.version")
    send("session", spark=spark.version, java=java, python=platform.python_version())
    stop = threading.Event()
    pipelines = _start(spark, bootstrap, work, stop, send)
    while (command := inbox.next()) is not None:
        if command["do"] == "stop":
            stop.set()
            for pipeline in pipelines:
                pipeline.join()
            send("stopped")
        elif command["do"] == "audit":
            _audit(spark, command["folders"], send)
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

    def batch_sender(query: str) -> Callable[[Progress], None]:
        return lambda progress: send("batch", query=query, **progress.__dict__)

    def run(what: Callable[..., object], plan: LandPlan | AggregatePlan) -> None:
        try:
            what(spark, plan, stop, batch_sender(plan.name))
        except Exception as error:  # noqa: BLE001 - sent to the demo, which then ends
            send("failed", why=f"{plan.name}: {cause(error)}")
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
    """The commands from stdin. At the end of the input, the process ends even if it is busy."""

    def __init__(self, source: TextIO) -> None:
        self._commands: list[dict[str, Any] | None] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._thread.start()

    def next(self) -> dict[str, Any] | None:
        """Wait for the next command and return it; None at the end of the input."""
        with self._changed:
            self._changed.wait_for(lambda: self._commands)
            return self._commands.pop(0)

    def end_by_force(self, after_s: float) -> None:
        """Kill the process group after a delay, because Spark may hang while it stops.

        Spark's JVM is in the same process group.
        """
        timer = threading.Timer(after_s, lambda: os.killpg(0, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def _read(self, source: TextIO) -> None:
        for line in source:
            self._put(json.loads(line))
        self._put(None)
        self.end_by_force(END_S)

    def _put(self, command: dict[str, Any] | None) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify()


def _own_stdout() -> TextIO:
    """Return stdout for our lines only; redirect the output of Spark and its children to stderr."""
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


def lean_home(folder: str) -> str | None:
    """Create a Spark home without pyspark's zip; return None if pyspark was not installed by pip.

    Spark puts `python/lib/pyspark.zip` of its home first on the path of its Python workers. Each of
    about six kinds of worker imports pyspark from that zip. If only pip installed pyspark, each
    import also compiles the zip's modules again. Without the zip, the demo's Python workers use 4
    seconds of CPU time; with a compiled zip they use 6. The first batches finish 5 seconds earlier.

    Use it only in this process: child processes inherit SPARK_HOME, and another Spark must not use
    this home.
    """
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places or not os.path.isdir(os.path.join(places[0], "jars")) or not find_spec("py4j"):
        return None
    home = os.path.join(folder, "spark-home")
    os.makedirs(home, exist_ok=True)
    for part in ("bin", "jars", "data", "sbin"):
        if os.path.isdir(os.path.join(places[0], part)):
            os.symlink(os.path.join(places[0], part), os.path.join(home, part))
    return home
