"""What checker and simulator found, told again as stories that anyone can play."""
