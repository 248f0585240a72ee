"""What a fault did to a stream: judged, told, and acted upon."""
