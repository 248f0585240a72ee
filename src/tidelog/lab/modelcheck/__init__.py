"""A breadth-first model checker, and the models that it explores up to a bound."""
