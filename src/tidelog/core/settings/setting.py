"""One setting: its name, what it may be, what it is when nobody says, and what it does.

Texts are read as Kafka reads them: blanks around a value do not count, booleans in any case,
lists between commas. A setting whose default is None may be left empty.
"""

from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | bool | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

READ_ONLY = "read-only"
CLUSTER_WIDE = "cluster-wide"
"""Can be changed while brokers run, for one of them or for all."""

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
"""The types, with the number that DescribeConfigs has for each."""

_LIMITS = {
    "short": (-(2**15), 2**15 - 1),
    "int": (-INT_MAX - 1, INT_MAX),
    "long": (-LONG_MAX - 1, LONG_MAX),
}


class WrongValue(ValueError):
    """A text that a setting can't have; the message says why, without the setting's name."""


class Setting(NamedTuple):
    """One row of the table. `least` and `most` are allowed themselves."""

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
    """How Tidelog's default or meaning differs from Kafka's."""
    heeded: bool = True
    """False: kept and shown, because Kafka's tools set it, and without effect so far."""

    @property
    def range(self) -> tuple[float | None, float | None]:
        """What a number must lie between; that of its type where nothing narrower is said."""
        least, most = _LIMITS.get(self.type, (None, None))
        return (
            least if self.least is None else self.least,
            most if self.most is None else self.most,
        )


def parse(setting: Setting, text: str) -> Value:
    """The value that a text stands for; raises WrongValue."""
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
    """A value as Kafka writes it; `parse` reads it back."""
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
        # int() refuses thousands of digits; twenty are above every limit already.
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
        strange = [item for item in items if item not in setting.choices]
        if strange:
            raise WrongValue(f"may hold {' and '.join(setting.choices)} only, not {strange[0]!r}")
        if len(set(items)) < len(items):
            raise WrongValue("names something twice")
    return items


def _of(unit: str) -> str:
    return f" ({unit})" if unit else ""
