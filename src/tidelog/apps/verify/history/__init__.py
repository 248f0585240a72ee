"""Journals of what clients saw, in files of fixed-size rows."""
