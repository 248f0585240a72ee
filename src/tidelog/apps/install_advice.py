"""Advice in error messages: how to install the packages that a command needs.

Tidelog is not on the package index yet, so its extras are installed from a clone.
"""

SPARK = "in a clone of Tidelog, run make spark or pip install '.[spark]'"
