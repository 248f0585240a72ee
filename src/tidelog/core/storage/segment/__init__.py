"""Segments: files of batches, their indexes, and checks of their content."""
