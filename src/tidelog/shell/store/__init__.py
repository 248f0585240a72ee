"""The metadata store: opened by URL, today a SQLite file, and the proof of a broker's death."""
