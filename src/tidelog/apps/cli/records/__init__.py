"""`tidelog produce` and `tidelog consume`: records on the command line."""
