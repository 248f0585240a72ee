"""Leader epochs, producer state and aborted transactions, as derived from a log."""
