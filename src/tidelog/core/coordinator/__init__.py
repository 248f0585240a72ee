"""The base of every coordinator: a replicated state machine in a partition of a topic.

Consumer groups are the first tenant (core/groups). A new coordinator brings:

- a shard, a subclass of `CoordinatorShard` (shard.py): its requests, its records, its timers;
- a subclass of `CoordinatorRuntime` (core/node/coordinating/coordinator_runtime.py), which names
  the internal topic and the requests, and one row in `TENANTS` beside it (coordinators.py).

The runtime does the rest: it loads a shard when this broker becomes leader of a partition,
writes the shard's records, reports when they are committed, and unloads it when the leader moves.
"""
