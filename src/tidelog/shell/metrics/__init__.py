"""A broker's metrics over HTTP, for Prometheus."""
