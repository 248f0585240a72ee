"""What must be true of a log, of the files beside it, and between replicas."""
