"""A worker process (`python -m tidelog.apps.verify.workload.worker`); stdin gives its task.

It is started as a new process and not forked: librdkafka has threads, and a fork would copy their
locks.
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
"""The function of each role. Only that module is imported: librdkafka may be missing."""


def main() -> None:
    """Do the task that stdin names. Ignores Ctrl-C: the run handles it and stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = Orders()
    module, _, name = ROLES[orders.task.role].partition(":")
    getattr(import_module(module), name)(orders)


if __name__ == "__main__":
    main()
