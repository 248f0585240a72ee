"""Translate findings of the model checker and the simulator into playable stories."""
