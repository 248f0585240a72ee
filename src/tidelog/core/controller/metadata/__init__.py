"""The metadata store: its interface, keys and values, and the image of its contents."""
