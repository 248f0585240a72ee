"""Clients that use a feature that is not implemented fail at once, with a clear error."""

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError
from real_cluster import eventually, make_topic

from tidelog.shell.supervisor.cluster import LocalCluster


def test_consumer_protocol_is_a_fatal_error_in_librdkafka(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    errors: list[KafkaError] = []
    on_error: Callable[[KafkaError], None] = errors.append
    client = Consumer(
        {
            "bootstrap.servers": calm.bootstrap,
            "group.id": name,
            "group.protocol": "consumer",
            "log_level": 0,
            "error_cb": on_error,
        }
    )
    try:
        client.subscribe([name])

        def error() -> KafkaError | None:
            message = client.poll(0.1)
            found = errors + ([message.error()] if message is not None else [])
            return next((each for each in found if each is not None), None)

        found = eventually(error, "librdkafka reports that the protocol is not supported")
        assert found.code() == KafkaError._FATAL
        assert "API version not supported" in found.str()
    finally:
        client.close()
