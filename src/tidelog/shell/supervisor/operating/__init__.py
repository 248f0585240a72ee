"""A running cluster of this machine, from outside its `tidelog up`: look, start, signal, stop."""
