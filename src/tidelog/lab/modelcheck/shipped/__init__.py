"""The model checker run on the shipped code: core/replication and core/controller."""
