"""Stories: replication told in text files, played by the broker's own code."""
