"""What must be true of a cluster, said once for stories, simulator and model checker."""
