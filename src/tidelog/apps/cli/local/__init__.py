"""Commands that run brokers on this machine, or look after those that run."""
