"""A segment of the log: its file of batches, and the sparse indexes beside it."""
