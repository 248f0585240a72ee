"""What must hold after every event, and once the cluster has settled."""
