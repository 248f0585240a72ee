"""Request handlers: one function for each API, named in `core/api_table.py`."""
