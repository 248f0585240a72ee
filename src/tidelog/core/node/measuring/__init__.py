"""What a broker counts while it works, and what it has to tell about itself."""
