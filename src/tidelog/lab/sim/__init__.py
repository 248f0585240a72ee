"""The seeded simulator: thousands of stories nobody wrote, over the broker's own code."""
