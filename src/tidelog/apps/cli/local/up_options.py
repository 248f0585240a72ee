"""What may be typed behind `tidelog up`: one table, read by click and by a quick reader.

Importing click takes as long as starting a broker. So a plain command line is read here, and
whatever is not plain (help, a typo, a wrong value) is left to click and its messages.
Always true: what the quick reader accepts, click accepts with the same meaning.
"""

from typing import Any, NamedTuple

FLAG, NUMBER, SECONDS, TEXT, MANY, CHOICE = "flag", "number", "seconds", "text", "many", "choice"


class Option(NamedTuple):
    """One option: how it is written, and what it becomes."""

    written: str
    field: str
    kind: str
    default: Any
    help: str
    metavar: str | None = None
    bounds: tuple[int, int] = (0, 0)
    choices: tuple[str, ...] = ()
    shown: bool = False
    """Whether help tells the default."""


class UpOptions(NamedTuple):
    """As given on the command line."""

    brokers: int | None = None
    port: int = 9092
    data: str | None = None
    ephemeral: bool = False
    one_process: bool = False
    detach: bool = False
    supervise: bool = False
    sets: tuple[str, ...] = ()
    racks: str = ""
    wait: float = 30.0
    form: str = "text"
    command: tuple[str, ...] = ()

    def conflict(self) -> str | None:
        """What does not go together."""
        if self.ephemeral and self.data:
            return "--ephemeral and --data exclude each other"
        if self.command and (self.detach or self.form == "json"):
            return "--detach and --format json are not for a COMMAND"
        return None


_DEFAULTS = UpOptions()

OPTIONS = (
    Option(
        "--brokers",
        "brokers",
        NUMBER,
        _DEFAULTS.brokers,
        "How many brokers.  [default: as many as have data in the folder, else 3]",
        bounds=(1, 100),
    ),
    Option(
        "--port",
        "port",
        NUMBER,
        _DEFAULTS.port,
        "The first broker's port; the others follow. 0 takes free ones.",
        bounds=(0, 65535),
        shown=True,
    ),
    Option(
        "--data",
        "data",
        TEXT,
        _DEFAULTS.data,
        "Where to keep the data.  [default: tidelog-data in the current folder]",
        metavar="DIR",
    ),
    Option("--ephemeral", "ephemeral", FLAG, False, "Keep the data in a temporary folder only."),
    Option(
        "--one-process", "one_process", FLAG, False, "All brokers in one process: the lightest."
    ),
    Option("--detach", "detach", FLAG, False, "Return when the cluster is ready; it goes on."),
    Option("--supervise", "supervise", FLAG, False, "Start a broker again that died."),
    Option("--set", "sets", MANY, (), "A setting of all brokers.", metavar="KEY=VALUE"),
    Option("--racks", "racks", TEXT, "", "The brokers' racks, in turn.", metavar="A,B,.."),
    Option(
        "--wait",
        "wait",
        SECONDS,
        _DEFAULTS.wait,
        "Give up if the cluster is not ready by then.",
        metavar="SECONDS",
        shown=True,
    ),
    Option(
        "--format",
        "form",
        CHOICE,
        _DEFAULTS.form,
        "How to print the result.",
        choices=("text", "json"),
        shown=True,
    ),
)


def read_plain(words: list[str]) -> UpOptions | None:
    """The options of a plain command line; None: let click look at it."""
    by_name = {option.written: option for option in OPTIONS}
    given: dict[str, Any] = {}
    at = 0
    while at < len(words) and words[at] != "--":
        written, equals, value = words[at].partition("=")
        option = by_name.get(written)
        if option is None or (option.kind == FLAG and equals):
            return None
        if option.kind != FLAG and not equals:
            at += 1
            if at == len(words) or words[at].startswith("-"):
                return None
            value = words[at]
        found = _value(option, value)
        if found is None:
            return None
        given[option.field] = (
            (*given.get(option.field, ()), found) if option.kind == MANY else found
        )
        at += 1
    options = UpOptions(**given, command=tuple(words[at + 1 :]))
    return options if options.conflict() is None else None


def _value(option: Option, text: str) -> Any:
    if option.kind == FLAG:
        return True
    if option.kind == NUMBER:
        plain = text.isascii() and text.isdecimal()
        return int(text) if plain and option.bounds[0] <= int(text) <= option.bounds[1] else None
    if option.kind == SECONDS:
        plain = text.isascii() and text.replace(".", "", 1).isdecimal()
        return float(text) if plain and float(text) > 0 else None
    if option.kind == CHOICE:
        return text if text in option.choices else None
    return text
