"""Everything a story can say: in each file one dict, a word to a function."""
