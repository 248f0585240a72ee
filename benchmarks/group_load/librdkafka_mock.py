"""librdkafka's mock cluster in a process of its own: three brokers in C and in memory.

Started by `how_far_do_groups_scale.py`. Prints one JSON line with the addresses, and exits when its
standard input ends.

    librdkafka_mock.py LIBRARY TOPIC PARTITIONS
"""

import ctypes
import json
import sys

PRODUCER = 0
BROKERS = 3


def main() -> None:
    path, topic, partitions = sys.argv[1:]
    library = ctypes.CDLL(path)
    for name, result, arguments in (
        ("conf_new", ctypes.c_void_p, []),
        (
            "new",
            ctypes.c_void_p,
            [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t],
        ),
        ("mock_cluster_new", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
        ("mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
        (
            "mock_topic_create",
            ctypes.c_int,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
        ),
        (
            "mock_group_initial_rebalance_delay_ms",
            None,
            [ctypes.c_void_p, ctypes.c_int32],
        ),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    problem = ctypes.create_string_buffer(512)
    client = library.rd_kafka_new(PRODUCER, library.rd_kafka_conf_new(), problem, len(problem))
    if not client:
        sys.exit(problem.value.decode())
    cluster = library.rd_kafka_mock_cluster_new(client, BROKERS)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)
    error = library.rd_kafka_mock_topic_create(cluster, topic.encode(), int(partitions), BROKERS)
    if error:
        sys.exit(f"the mock cluster cannot create topic {topic}: error {error}")
    bootstrap = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
    print(json.dumps({"bootstrap": bootstrap}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
