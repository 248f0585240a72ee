"""A replacement for `dataclasses` that takes a tenth of its time at import.

A broker has about two hundred small classes for events, effects and messages, and should start in a
fraction of a second. `dataclass` generates and compiles several methods for each class at import.
Here `__init__`, `__eq__` and `__hash__` are compiled at their first call, and all classes share
the other methods.

Invariant: the fields are the annotations in their order, those of base classes first, and are
slots. Equality, hash, repr, `match` and `dataclasses.replace` work as for a dataclass.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_FIELDS = "__slotted_fields__"
_NOTHING: Any = object()


class _Field:
    """A field: its name, its default, and whether it is keyword-only."""

    __slots__ = ("default", "factory", "kw_only", "name")

    def __init__(self, default: Any = _NOTHING, factory: Any = _NOTHING) -> None:
        self.name = ""
        self.default = default
        self.factory = factory
        self.kw_only = False


def field(*, default_factory: Callable[[], T]) -> T:
    """Declare a field whose default is created for each instance."""
    made: Any = _Field(factory=default_factory)
    return made  # type: ignore[no-any-return]


@overload
def slotted(cls: type[T], /) -> type[T]: ...


@overload
def slotted(
    *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(field,))
def slotted(
    cls: type[T] | None = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Turn annotations into fields, like `dataclass`. Frozen classes have a hash. With `eq` false,
    an instance equals only itself."""

    def decorate(cls: type[T]) -> type[T]:
        return _make(cls, frozen=frozen, eq=eq, kw_only=kw_only)

    return decorate if cls is None else decorate(cls)


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with some fields changed."""
    cls: Any = type(value)
    for one in getattr(cls, _FIELDS):
        if one.name not in changes:
            changes[one.name] = getattr(value, one.name)
    made: T = cls(**changes)
    return made


def _make(cls: type[T], *, frozen: bool, eq: bool, kw_only: bool) -> type[T]:
    body = dict(cls.__dict__)
    own = [_own_field(name, body, kw_only) for name in cls.__annotations__]
    known = {one.name: one for base in cls.__mro__[:0:-1] for one in base.__dict__.get(_FIELDS, ())}
    new = [one.name for one in own if one.name not in known]
    known.update({one.name: one for one in own})
    fields = tuple(known.values())
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body["__qualname__"] = cls.__qualname__
    body["__slots__"] = tuple(new)
    body["__match_args__"] = tuple(one.name for one in fields if not one.kw_only)
    body[_FIELDS] = fields
    body["__dataclass_fields__"] = _DATACLASS_FIELDS
    body["__init__"] = _first_init
    body.setdefault("__repr__", _repr)
    if eq:
        body.setdefault("__eq__", _first_eq)
        body.setdefault("__hash__", _first_hash if frozen else None)
    if frozen:
        body["__setattr__"], body["__delattr__"] = _refuse_set, _refuse_delete
        body["__reduce__"] = _reduce
    kind: Any = type(cls)
    made: type[T] = kind(cls.__name__, cls.__bases__, body)
    return made


def _own_field(name: str, body: dict[str, Any], kw_only: bool) -> _Field:
    default = body.pop(name, _NOTHING)
    one = default if isinstance(default, _Field) else _Field(default)
    one.name = name
    one.kw_only = kw_only
    return one


def _first_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Compile `__init__` at its first call, and replace this function with it."""
    cls = _owner(type(self), "__init__", _first_init)
    cls.__init__ = _compiled_init(cls)
    cls.__init__(self, *args, **kwargs)


def _first_eq(self: Any, other: object) -> Any:
    cls = _owner(type(self), "__eq__", _first_eq)
    head = " if other.__class__ is not self.__class__:\n  return NotImplemented\n"
    line = f"{head} return {_values(cls, 'self')} == {_values(cls, 'other')}"
    cls.__eq__ = _compiled(cls, "__eq__", "self, other", line, {})
    return cls.__eq__(self, other)


def _first_hash(self: Any) -> int:
    cls = _owner(type(self), "__hash__", _first_hash)
    cls.__hash__ = _compiled(cls, "__hash__", "self", f" return hash({_values(cls, 'self')})", {})
    return hash(self)


def _owner(cls: type[Any], method: str, stand_in: object) -> Any:
    """Return the class that defines this placeholder method."""
    return next(base for base in cls.__mro__ if base.__dict__.get(method) is stand_in)


def _values(cls: type[Any], of: str) -> str:
    """Return the source of a tuple of all fields."""
    return "(" + "".join(f"{of}.{one.name}, " for one in getattr(cls, _FIELDS)) + ")"


def _compiled(
    cls: type[Any], method: str, parameters: str, lines: str, names: dict[str, Any]
) -> Any:
    # If `exec` got a string, an interrupt here would end the process by SIGINT although it was
    # handled (CPython).
    exec(compile(f"def {method}({parameters}):\n{lines}", "<slotted>", "exec"), names)
    names[method].__qualname__ = f"{cls.__qualname__}.{method}"
    return names[method]


def _compiled_init(cls: type[Any]) -> Any:
    """Compile `def __init__(self, a, b=<default>): self.a = a; ...`."""
    fields: tuple[_Field, ...] = getattr(cls, _FIELDS)
    frozen = cls.__dict__.get("__setattr__") is _refuse_set
    names: dict[str, Any] = {"NOTHING": _NOTHING}
    parameters, lines = ["self"], []
    for one in sorted(fields, key=lambda one: one.kw_only):
        if one.kw_only and "*" not in parameters:
            parameters.append("*")
        name, given = one.name, one.name
        if one.factory is not _NOTHING:
            names[f"make_{name}"] = one.factory
            parameters.append(f"{name}=NOTHING")
            given = f"make_{name}() if {name} is NOTHING else {name}"
        elif one.default is not _NOTHING:
            names[f"default_{name}"] = one.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        if frozen:
            # Write the slot directly: `__setattr__` raises.
            names[f"set_{name}"] = getattr(cls, name).__set__
            lines.append(f" set_{name}(self, {given})")
        else:
            lines.append(f" self.{name} = {given}")
    body = "\n".join(lines or [" pass"])
    return _compiled(cls, "__init__", ", ".join(parameters), body, names)


def _repr(self: Any) -> str:
    fields = (f"{one.name}={getattr(self, one.name)!r}" for one in getattr(self, _FIELDS))
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, one.name) for one in getattr(self, _FIELDS))


def _refuse_set(self: object, name: str, _value: object) -> NoReturn:
    raise AttributeError(f"{type(self).__qualname__}.{name} can't be changed")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise AttributeError(f"{type(self).__qualname__}.{name} can't be deleted")


class _DataclassFields:
    """A descriptor for `dataclasses.replace` and `fields` on slotted classes, for tools and tests.
    The first access replaces it with its value."""

    def __get__(self, _value: object, cls: type[Any]) -> dict[str, Any]:
        import dataclasses

        wanted: list[Any] = []
        for one in getattr(cls, _FIELDS):
            kinds = (base.__annotations__ for base in cls.__mro__[:-1])
            kind = next(kind[one.name] for kind in kinds if one.name in kind)
            options: dict[str, Any] = {"kw_only": one.kw_only}
            if one.default is not _NOTHING:
                options["default"] = one.default
            if one.factory is not _NOTHING:
                options["default_factory"] = one.factory
            wanted.append((one.name, kind, dataclasses.field(**options)))
        made: Any = dataclasses.make_dataclass(cls.__name__, wanted)
        fields: dict[str, Any] = made.__dataclass_fields__
        owner: Any = next(base for base in cls.__mro__ if _FIELDS in base.__dict__)
        owner.__dataclass_fields__ = fields
        return fields


_DATACLASS_FIELDS = _DataclassFields()
