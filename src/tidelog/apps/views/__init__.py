"""Views of a running cluster (Tidelog or Kafka) as plain data: brokers, topics, partitions, groups.

Each function sends requests through `shell/client` and returns NamedTuples; `as_data()` converts
them to types that JSON has. The command line prints them as text.
Invariant: nothing here prints, and nothing here imports click or rich.
"""
