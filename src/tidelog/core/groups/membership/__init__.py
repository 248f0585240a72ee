"""The members of a group, and how they agree on a generation.

Start with `group.py` for the states, then read `rebalance.py` for the transitions.
"""
