"""From the notation of a message to functions that read and write it."""
