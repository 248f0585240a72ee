"""Producers and consumers, in processes of their own."""
