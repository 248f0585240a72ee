"""Values into columns, where a schema is given; what does not fit is told apart with a reason.

Always true: a null value is no error (a tombstone has none), and gives null columns.
"""
