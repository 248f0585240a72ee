"""Text output of the lab's commands and of segments; other commands print their own output.

These modules import the lab or the log format: a command imports its module only when it runs.
"""
