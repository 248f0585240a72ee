"""What makes a batch that is run again harmless: who writes, what is there, what is done."""
