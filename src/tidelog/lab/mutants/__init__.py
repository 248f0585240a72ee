"""Known bugs, put back into a copy of the code to test whether the lab finds them."""
