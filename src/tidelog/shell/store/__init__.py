"""The metadata store, which a URL selects, and the proof of a broker's death."""
