"""Fuzzing: invalid and hostile requests for a broker in memory."""
