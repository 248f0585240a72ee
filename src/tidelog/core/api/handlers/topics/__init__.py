"""Making, growing and deleting topics."""
