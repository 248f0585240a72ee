"""The shipped code itself under the checker: core/replication and core/controller."""
