"""Python source code under construction: lines, unique names, and the constants that they use."""

from collections.abc import Callable
from struct import Struct
from typing import Any

from tidelog.core.wire.schema.notation import FORMATS, Field


class Source:
    """The source of one generated function."""

    def __init__(self, signature: str, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self._lines = [signature]
        self._depth = 1
        self._names = 0
        self._known: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A unique variable name."""
        self._names += 1
        return f"{stem}{self._names}"

    def use(self, function: Callable[..., Any]) -> str:
        """Make a function available to the source under its own name."""
        self._known[function.__name__] = function
        return function.__name__

    def layout(self, run: list[Field]) -> tuple[str, Struct]:
        """The Struct of these neighbouring fields, and its name in the source."""
        format_ = "".join(FORMATS[field.type] for field in run)
        name = "layout_" + format_.replace("?", "t")
        layout = self._known.setdefault(name, Struct(">" + format_))
        return name, layout

    def compile(self, name: str) -> Any:
        """Compile the lines and return the function."""
        exec(compile("\n".join(self._lines), f"<{name}>", "exec"), self._known)
        return self._known["function"]
