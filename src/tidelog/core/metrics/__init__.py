"""What Prometheus is told: a table of metrics, and its text. Imported with the first scrape."""
