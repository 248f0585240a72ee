"""Where replicas lie, who leads them, and what they know of producers."""
