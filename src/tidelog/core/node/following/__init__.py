"""Copying from leaders."""
