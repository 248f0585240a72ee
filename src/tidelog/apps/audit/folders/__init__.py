"""What is on disk, found by its names; nothing here writes, creates or locks."""
