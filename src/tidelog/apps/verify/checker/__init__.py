"""Pure functions from what clients saw to what must not have happened."""
