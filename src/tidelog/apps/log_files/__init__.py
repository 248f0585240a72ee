"""Reading a log directory's files from outside: nothing here writes, creates or locks."""
