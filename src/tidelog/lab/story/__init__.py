"""Stories: replication scenarios in text files, run by the broker's own code."""
