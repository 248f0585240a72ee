"""A librdkafka producer that never stops, and every promise it got.

It has a thread of its own, so that a dead leader holds up nothing but its own deliveries, and a
connection to every broker: if librdkafka is connected to the leader only and it dies, it looks
for the new one a second later ("no usable brokers" in its debug log), with any cluster.
Always true: `promises` has exactly the orders that the cluster acknowledged with acks=all.
"""

import threading
import time
from typing import Any

from tidelog.apps.demo import orders
from tidelog.apps.demo.orders import Promise

PER_SECOND = 500
BURST_S = 0.01
FLUSH_S = 30.0


class Writer:
    """Writes orders 0, 1, 2, … from `start` to `stop`."""

    def __init__(self, bootstrap: str, topic: str = orders.TOPIC) -> None:
        from confluent_kafka import Producer

        self.sent = 0
        self.failed = 0
        self.promises: list[Promise] = []
        self._topic = topic
        self._stop = threading.Event()
        self._broke: Exception | None = None
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
        return len(self.promises)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, close_windows: bool = False) -> None:
        """No more orders, and an answer for each that was sent. `close_windows`: the last one
        is ordered far ahead of all others."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._broke is not None:
            raise self._broke
        if close_windows:
            self._order(orders.CLOSING_MS)
        self._producer.flush(FLUSH_S)

    def first_ack_from(self, offset: int, after_s: float) -> Promise | None:
        """Of all orders at `offset` and behind it, the one acknowledged first after a time."""
        return min(
            (p for p in list(self.promises) if p.offset >= offset and p.at_s > after_s),
            key=lambda promise: promise.at_s,
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
        except Exception as error:  # noqa: BLE001 - told by `stop`, in the caller's thread
            self._broke = error

    def _order(self, ahead_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000 + ahead_ms
        text = orders.value(self.sent)
        self._producer.produce(self._topic, text, timestamp=now_ms, on_delivery=self._told)
        self.sent += 1

    def _told(self, error: object, message: Any) -> None:
        if error is None:
            number = orders.number_of(message.value())
            _, event_ms = message.timestamp()
            promise = Promise(number, message.offset(), time.monotonic(), event_ms)
            self.promises.append(promise)
        else:
            self.failed += 1
