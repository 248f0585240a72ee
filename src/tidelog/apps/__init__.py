"""Apps are what people use."""
