"""Counters, times, and events for the broker's log."""
