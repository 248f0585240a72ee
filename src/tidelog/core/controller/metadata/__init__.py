"""What the metadata store holds: its interface, its keys, its values, the picture of it all."""
