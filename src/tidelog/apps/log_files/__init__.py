"""Read the files of a log directory without a broker; nothing here writes, creates or locks."""
