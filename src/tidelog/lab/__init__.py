"""Lab proves: stories, simulator and model checker over core's own code."""
