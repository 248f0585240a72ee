"""What is looked at before a cluster is started, while nothing is touched."""
