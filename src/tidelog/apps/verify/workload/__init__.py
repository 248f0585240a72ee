"""Producers and consumers in separate processes."""
