"""One file for each noun that clients ask about; each function serves one API."""
