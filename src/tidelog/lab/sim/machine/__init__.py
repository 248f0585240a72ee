"""Simulated network, disk, metadata store, clock and process of a broker, with faults."""
