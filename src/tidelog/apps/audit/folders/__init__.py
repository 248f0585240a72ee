"""Find log directories and partitions by their file names; never write, create or lock files."""
