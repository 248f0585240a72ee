"""What clients saw, in files of fixed-size rows."""
