"""The invariants of a cluster, as stories check them. The simulator uses the same names."""
