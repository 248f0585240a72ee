"""Known mistakes put back, in the lab alone, to see whether the lab finds them."""
