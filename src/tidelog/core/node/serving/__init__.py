"""Answering clients and followers."""
