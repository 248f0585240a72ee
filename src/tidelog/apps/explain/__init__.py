"""Explain the state of a partition: why its HW does not move, who is out of sync, who would lead.

Pure functions from a view (`apps/views/partition.py`) and the state that its leader reported to
sentences. They run on states of now and of an earlier moment alike.
"""
