"""Ready-made Spark pipelines: land topics in a lake, aggregate them, send a lake back to topics.

Invariants: reading and validating a plan does not need Spark. A pipeline that ended in any way
resumes where it stopped, and writes no row twice.
"""
