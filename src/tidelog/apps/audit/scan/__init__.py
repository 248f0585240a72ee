"""Reading segments: batches in numpy arrays, a piece of the file at a time."""
