"""Ready pipelines on Spark: land topics in a lake, aggregate them, send a lake back to topics.

Always true: what a plan is, and whether a file holds one, is known without Spark; a pipeline
that was ended in any way goes on where it was, and no row is written twice.
"""
