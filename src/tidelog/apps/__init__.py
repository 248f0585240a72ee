"""The programs that people use: the command line, Spark, audit, demo, verify, fuzz and others."""
