"""The cluster as clients see it: what is offered, brokers, topics and where they are."""
