"""Read a broker's settings from a file like Kafka's server.properties, the environment, and
`--set key=value`.

Each source is read as Kafka and its container images read it. Errors name the file and the line.
"""

from collections.abc import Iterable, Iterator, Mapping

from tidelog.core.settings.broker_settings import (
    Entry,
    InvalidSetting,
    InvalidSettings,
    Layer,
    Resolved,
    resolve,
)

UP, FILE, ENVIRONMENT, COMMAND_LINE = "tidelog up", "file", "environment", "command line"

_PREFIX = "KAFKA_"
_VENDOR_PREFIX = "KAFKA_CFG_"
_NOT_SETTINGS = frozenset(
    (
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_BROKERS",
        "KAFKA_CLASSPATH",
        "KAFKA_CLUSTER_ID",
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    )
)
_NOT_SETTINGS_PREFIXES = ("KAFKA_JMX_", "KAFKA_LOG4J_", "KAFKA_JAVA_")
"""Variables that container images, start scripts or client programs read themselves."""

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class BadEscape(ValueError):
    """A `\\u` that is not followed by four hexadecimal digits."""


def load_settings(
    config: str | None = None,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    base: Mapping[str, str] | None = None,
) -> Resolved:
    """Combine the settings of all sources. Raises InvalidSettings.

    In rising precedence: `base` (chosen by `tidelog up`), the file, the environment, `--set`.
    """
    problems: list[InvalidSetting] = []
    entries, warnings = _read_file(config, problems) if config is not None else ([], [])
    layers = [
        Layer(UP, [Entry(name, text, UP) for name, text in (base or {}).items()]),
        Layer(FILE, entries),
        Layer(ENVIRONMENT, list(_from_environment(environ or {}))),
        Layer(COMMAND_LINE, list(_from_options(sets, problems))),
    ]
    try:
        resolved = resolve(layers)
    except InvalidSettings as invalid:
        raise InvalidSettings([*problems, *invalid.problems]) from None
    if problems:
        raise InvalidSettings(problems)
    return Resolved(resolved.settings, [*warnings, *resolved.warnings])


def variable_to_name(variable: str) -> str | None:
    """The setting that a variable sets: KAFKA_LOG_RETENTION_MS is log.retention.ms.

    Two underscores stand for an underscore, three for a hyphen. None for other variables.
    """
    if variable in _NOT_SETTINGS or variable.startswith(_NOT_SETTINGS_PREFIXES):
        return None
    for prefix in (_VENDOR_PREFIX, _PREFIX):
        if variable.startswith(prefix) and len(variable) > len(prefix):
            name = variable[len(prefix) :].lower()
            # The order matters. NUL, which no variable contains, replaces `__` in between.
            return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
    return None


def parse_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, key, value) as java.util.Properties reads them; raises BadEscape(line, what)."""
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in _BLANKS + "=:":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        try:
            yield number, _unescaped(line[:end]), _unescaped(rest)
        except BadEscape as bad:
            raise BadEscape(number, str(bad)) from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The logical lines: no comments or blank lines, and continued lines are joined."""
    begun = 0
    parts: list[str] = []
    for number, natural in enumerate(_natural_lines(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            begun = number
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if continued else line)
        if not continued:
            if any(parts):
                yield begun, "".join(parts)
            parts = []
    if any(parts):
        yield begun, "".join(parts)


def _natural_lines(text: str) -> list[str]:
    """Split at line ends only; str.splitlines also splits at characters that Java keeps."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out, index = [], 0
    while index < len(text):
        if text[index] != "\\":
            out.append(text[index])
            index += 1
            continue
        escaped = text[index + 1 : index + 2]
        if escaped == "u":
            digits = text[index + 2 : index + 6]
            if len(digits) < 4 or not set(digits) <= set("0123456789abcdefABCDEF"):
                raise BadEscape(f"\\u{digits}")
            out.append(chr(int(digits, 16)))
            index += 6
        else:
            out.append(_ESCAPES.get(escaped, escaped))
            index += 2
    return "".join(out)


def _read_file(path: str, problems: list[InvalidSetting]) -> tuple[list[Entry], list[str]]:
    """The file's entries, and a warning for each key that occurs twice; the last one counts."""
    found: dict[str, Entry] = {}
    warnings = []
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        problems.append(InvalidSetting("--config", path, "command line", error.strerror or ""))
        return [], []
    try:
        for number, name, value in parse_properties(_decoded(data)):
            if name in found:
                warnings.append(
                    f"{path}:{number}: {name} is set twice; line {_line(found[name])} is ignored"
                )
            found[name] = Entry(name, value, f"{path}:{number}")
    except BadEscape as bad:
        number, what = bad.args
        reason = "must be \\u and four hexadecimal digits; a backslash is written twice"
        problems.append(InvalidSetting(what, "", f"{path}:{number}", reason))
    return list(found.values()), warnings


def _line(entry: Entry) -> str:
    return entry.place.rpartition(":")[2]


def _decoded(data: bytes) -> str:
    """Decode as UTF-8, which editors write, or else as Latin-1, which Java reads."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _from_environment(environ: Mapping[str, str]) -> Iterator[Entry]:
    for variable, text in environ.items():
        name = variable_to_name(variable)
        if name is not None:
            yield Entry(name, text, variable)


def _from_options(sets: Iterable[str], problems: list[InvalidSetting]) -> Iterator[Entry]:
    for option in sets:
        name, equals, text = option.partition("=")
        if equals and name.strip():
            yield Entry(name.strip(), text, f"--set {name.strip()}")
        else:
            problems.append(InvalidSetting("--set", option, "command line", "must be key=value"))
