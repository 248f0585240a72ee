"""Changes that a user requests from a running cluster: topics, leaders, replicas, group offsets.

Invariant: nothing here prints or asks the user, and nothing here imports click or rich. Each
function returns an `outcome.Change` for everything it was asked to change.
"""
