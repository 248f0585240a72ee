"""One broker, whole, without I/O: Node.step(event) -> effects."""
