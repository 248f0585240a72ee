"""Commands that start Spark: the audit and the pipelines."""
