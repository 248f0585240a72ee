"""A broker's page for Prometheus, served by its own loop."""
