"""Request handlers: one function for each API, named in `core/api_table.py`."""

from importlib import import_module

from tidelog.core.api.context import Handler
from tidelog.core.api_table import OFFERED

_PACKAGE = "handlers."
HANDLERS = {key: api.handler for key, api in OFFERED.items() if api.handler.startswith(_PACKAGE)}
"""`module:function` by API key. Produce and Fetch have a path of their own in dispatch.py."""

_imported: dict[int, Handler] = {}


def handler_of(api_key: int) -> Handler:
    """The handler of an API; its module is imported on first use."""
    handler = _imported.get(api_key)
    if handler is None:
        module, _, name = HANDLERS[api_key].partition(":")
        handler = getattr(import_module(f"tidelog.core.api.{module}"), name)
        _imported[api_key] = handler
    return handler
