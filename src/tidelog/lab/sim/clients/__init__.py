"""Simulated clients, which check or report whether the cluster keeps its guarantees."""
