"""A complete broker without I/O: Node.step(event) -> effects."""
