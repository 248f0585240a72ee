"""`tidelog group`: consumer groups on the command line."""
