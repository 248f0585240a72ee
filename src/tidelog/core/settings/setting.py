"""One setting: name, type, default, allowed values, and what it does.

Texts are parsed as in Kafka: surrounding blanks are ignored, booleans may be in any case, lists are
separated by commas. A setting whose default is None may be empty.
"""

from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | bool | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

READ_ONLY = "read-only"
CLUSTER_WIDE = "cluster-wide"
"""Can be changed at run time, for one broker or for all."""

HIGH, MEDIUM, LOW = "high", "medium", "low"

TYPE_CODES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
"""The types, with their codes in DescribeConfigs."""

_LIMITS = {
    "short": (-(2**15), 2**15 - 1),
    "int": (-INT_MAX - 1, INT_MAX),
    "long": (-LONG_MAX - 1, LONG_MAX),
}


class WrongValue(ValueError):
    """An invalid value; the message is the reason, without the setting's name."""


class Setting(NamedTuple):
    """One row of a table of settings. `least` and `most` are inclusive."""

    name: str
    type: str
    default: Value
    doc: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    importance: str = MEDIUM
    dynamic: str = READ_ONLY
    note: str = ""
    """The difference from Kafka's default or meaning."""
    has_effect: bool = True
    """False: stored and shown because Kafka's tools set it, but without effect so far."""

    @property
    def range(self) -> tuple[float | None, float | None]:
        """The smallest and largest allowed number; the type's range if the row has none."""
        least, most = _LIMITS.get(self.type, (None, None))
        return (
            least if self.least is None else self.least,
            most if self.most is None else self.most,
        )


def parse(setting: Setting, text: str) -> Value:
    """Parse a value. Raises WrongValue."""
    text = text.strip()
    if not text and setting.default is None:
        return None
    match setting.type:
        case "short" | "int" | "long" | "double":
            return _number(setting, text)
        case "boolean":
            if text.lower() not in ("true", "false"):
                raise WrongValue("must be true or false")
            return text.lower() == "true"
        case "list":
            return _list(setting, text)
    if setting.choices and text not in setting.choices:
        raise WrongValue(f"must be one of {', '.join(setting.choices)}")
    return text


def spell(value: Value) -> str | None:
    """Format a value as Kafka does; the inverse of `parse`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return None if value is None else str(value)


def _number(setting: Setting, text: str) -> int | float:
    number: int | float
    if setting.type == "double":
        try:
            number = float(text)
        except ValueError:
            raise WrongValue("must be a number") from None
    else:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            raise WrongValue("must be a whole number" + _of(setting.unit))
        # int() rejects thousands of digits; twenty digits already exceed every limit.
        number = int(text) if len(digits) <= 20 else LONG_MAX + 1
    least, most = setting.range
    if least is not None and not number >= least:
        raise WrongValue(f"must be at least {least}{_of(setting.unit)}")
    if most is not None and number > most:
        raise WrongValue(f"must be at most {most}{_of(setting.unit)}")
    return number


def _list(setting: Setting, text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",")) if text else ()
    if "" in items:
        raise WrongValue("has an empty item between its commas")
    if setting.choices:
        unknown = [item for item in items if item not in setting.choices]
        if unknown:
            allowed = " and ".join(setting.choices)
            raise WrongValue(f"may contain only {allowed}, not {unknown[0]!r}")
        if len(set(items)) < len(items):
            raise WrongValue("has a duplicate item")
    return items


def _of(unit: str) -> str:
    return f" ({unit})" if unit else ""
