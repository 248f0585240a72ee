"""`tidelog verify`: run a workload, inject faults, and check everything that clients saw."""
