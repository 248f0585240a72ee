"""Read segments piece by piece, with the batches in numpy arrays."""
