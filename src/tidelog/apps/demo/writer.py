"""A librdkafka producer that writes all the time, and every acknowledgement it received.

It runs in a separate thread, so that a dead leader delays only its deliveries. It keeps a
connection to every broker. Otherwise, if the only connected broker is the leader and it dies,
librdkafka waits a second before it looks for the new leader. Its debug log then has "no usable
brokers"; this happens with any cluster.

Invariant: `acked` holds exactly the orders that the cluster acknowledged with acks=all.
"""

import threading
import time
from typing import Any

from tidelog.apps.demo import orders
from tidelog.apps.demo.orders import AckedOrder

PER_SECOND = 500
BURST_S = 0.01
FLUSH_S = 120.0


class LastOrderFailed(Exception):
    """The order that closes the windows was not acknowledged. The message is one line."""


class Writer:
    """Writes orders 0, 1, 2, … from `start` to `stop`."""

    def __init__(self, bootstrap: str, topic: str = orders.TOPIC) -> None:
        from confluent_kafka import Producer

        self.sent = 0
        self.failed = 0
        self.acked: list[AckedOrder] = []
        self._topic = topic
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._last_failure: object = None
        self._thread = threading.Thread(target=self._run, name="demo-writer", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "enable.sparse.connections": False,
                "log_level": 0,
            }
        )

    @property
    def acknowledged(self) -> int:
        return len(self.acked)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, close_windows: bool = False) -> None:
        """Stop writing, and wait until each sent order is acknowledged or has failed.

        With `close_windows`, first write one more order with a timestamp far ahead of all others.
        Raises LastOrderFailed if that order fails, because its windows then stay open forever.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None:
            raise self._error
        if close_windows:
            self._order(orders.CLOSING_MS)
        self._producer.flush(FLUSH_S)
        if close_windows and all(order.number != self.sent - 1 for order in reversed(self.acked)):
            why = self._last_failure or f"no response within {FLUSH_S:g} s"
            raise LastOrderFailed(f"the order that closes the windows was not acknowledged: {why}")

    def first_ack_from(self, offset: int, after_s: float) -> AckedOrder | None:
        """Return the first acknowledgement after a time, of all orders at `offset` or higher."""
        return min(
            (p for p in list(self.acked) if p.offset >= offset and p.at_s > after_s),
            key=lambda order: order.at_s,
            default=None,
        )

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._stop.is_set():
                due = int((time.monotonic() - began) * PER_SECOND)
                while self.sent < due:
                    self._order(0)
                self._producer.poll(0)
                self._stop.wait(BURST_S)
        except Exception as error:  # noqa: BLE001 - `stop` raises it in the caller's thread
            self._error = error

    def _order(self, ahead_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000 + ahead_ms
        text = orders.value(self.sent)
        self._producer.produce(self._topic, text, timestamp=now_ms, on_delivery=self._on_delivery)
        self.sent += 1

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is None:
            number = orders.number_of(message.value())
            _, event_ms = message.timestamp()
            order = AckedOrder(number, message.offset(), time.monotonic(), event_ms)
            self.acked.append(order)
        else:
            self.failed += 1
            self._last_failure = error
