"""Options of the source: names, meaning, and what is refused."""
