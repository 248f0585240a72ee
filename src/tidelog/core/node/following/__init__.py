"""Fetching from leaders."""
