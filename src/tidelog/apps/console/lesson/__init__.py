"""Three brokers for the time of a lesson, apart from the cluster that the console shows."""
