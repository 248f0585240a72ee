"""Stories, simulator, model checker and fuzzer that check core's own code."""
