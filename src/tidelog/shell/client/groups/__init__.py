"""Consumer groups as a client sees them: looking after them, and being a member of one."""
