"""Commands that administer a running cluster: topics, settings, moves of replicas."""
