"""A worker process: `python -m tidelog.apps.verify.workload.worker`, told what to do on stdin.

A process of its own, started anew and not forked: librdkafka has threads, and a fork would
copy their locks.
"""

import signal
from importlib import import_module

from tidelog.apps.verify.workload.orders import Orders

ROLES = {
    "librdkafka producers": "librdkafka_producers",
    "own producers": "own_producers",
    "librdkafka consumer": "librdkafka_consumer",
    "own reader": "raw_reader",
}
"""Each role and the module whose `run` plays it."""


def main() -> None:
    """Do the task that stdin names. Ctrl-C is for the run, which then tells its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = Orders()
    import_module(f"tidelog.apps.verify.workload.{ROLES[orders.task.role]}").run(orders)


if __name__ == "__main__":
    main()
