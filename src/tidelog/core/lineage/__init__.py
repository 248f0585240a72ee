"""Who wrote what: leader epochs and producers, as the log itself remembers them."""
