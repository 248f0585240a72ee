"""The ways to damage one replica's files, by the kind of file."""
