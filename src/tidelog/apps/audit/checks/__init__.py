"""Check the rules for a log, for the files beside it, and between replicas."""
