"""Who belongs to a group, and how its members agree on a generation.

Start with `group.py` for the states, then `rebalance.py` for the way from one to the next.
"""
