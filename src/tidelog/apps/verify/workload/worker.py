"""A worker process: `python -m tidelog.apps.verify.workload.worker`, told what to do on stdin.

A process of its own, started anew and not forked: librdkafka has threads, and a fork would
copy their locks.
"""

import signal
from importlib import import_module

from tidelog.apps.verify.workload.orders import Orders

ROLES = {
    "librdkafka producers": "tidelog.apps.verify.workload.librdkafka_clients:run_producers",
    "own producers": "tidelog.apps.verify.workload.own_producers:run",
    "librdkafka consumer": "tidelog.apps.verify.workload.librdkafka_clients:run_consumer",
    "own reader": "tidelog.apps.verify.workload.raw_reader:run",
}
"""Each role and what plays it. Only that is imported: a machine may have no librdkafka."""


def main() -> None:
    """Do the task that stdin names. Ctrl-C is for the run, which then tells its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = Orders()
    module, _, name = ROLES[orders.task.role].partition(":")
    getattr(import_module(module), name)(orders)


if __name__ == "__main__":
    main()
