"""Pure functions that find anomalies: they compare what clients saw with the final log."""
