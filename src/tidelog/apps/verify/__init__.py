"""`tidelog verify`: a workload, a nemesis, and a checker over all that clients saw."""
