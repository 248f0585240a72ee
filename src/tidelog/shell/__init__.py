"""Shell acts: the only code that touches the world."""
