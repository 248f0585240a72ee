"""Dispatch and handlers of Kafka's requests, between the connections and the node."""
