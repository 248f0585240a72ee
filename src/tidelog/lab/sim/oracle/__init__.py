"""The checks of the simulator: after every event, and once the cluster has settled."""
