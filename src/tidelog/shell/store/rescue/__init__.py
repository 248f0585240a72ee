"""A new metadata store in place of one that is lost, damaged or behind."""
