"""How results are shown, in words and as data: one file a subject."""
