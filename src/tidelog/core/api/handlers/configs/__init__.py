"""Settings shown and changed."""
