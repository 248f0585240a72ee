"""Replace a metadata store that is lost, damaged or too old."""
