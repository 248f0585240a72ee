"""Builds encoders and decoders from the notation of messages."""
