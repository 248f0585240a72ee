"""Metrics for Prometheus: table of metrics and text format. Imported with the first scrape."""
