"""The whole of what an administrator may ask: many topics, settings or moves in one request."""
