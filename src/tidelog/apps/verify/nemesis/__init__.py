"""Faults: which, when, on whom, and how long writes stood still."""
