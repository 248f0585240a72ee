"""Every story up to a bound: a breadth-first checker and the models it runs."""
