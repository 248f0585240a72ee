"""Pure functions that find anomalies in what clients saw."""
