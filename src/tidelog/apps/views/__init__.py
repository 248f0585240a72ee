"""What a cluster looks like, as plain data: cluster, brokers, topics, partitions, groups, configs.

Each function asks a running cluster (Tidelog, or any Kafka) through `shell/client` and returns
NamedTuples; `as_data()` turns them into what JSON can hold. The command line renders them as text.
Invariant: nothing here prints, and nothing here imports click or rich.
"""
