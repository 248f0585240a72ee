"""Changes that a user requests from a running cluster: topics, leaders, replicas, group offsets.

Invariant: nothing here prints or reads from the terminal, and nothing here imports click or rich.
Each function returns an `outcome.Change` for each requested change.
"""
