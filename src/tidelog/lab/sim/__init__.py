"""The seeded simulator: random clusters, clients and faults around the broker's own code."""
