"""Slotted classes behave like dataclasses in every respect that is used."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.slotted import field, replace, slotted


@slotted
class Point:
    """A class with fields and defaults."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.x + self.y


@slotted(frozen=True)
class Frozen:
    """A frozen class."""

    name: str
    size: int = 0


@slotted(frozen=True)
class Lonely:
    """A class with one field."""

    name: str


@slotted(frozen=True)
class Empty:
    """A class without fields."""


@slotted(eq=False)
class Itself:
    """A class whose instances equal only themselves."""

    x: int


@slotted(kw_only=True)
class Derived(Point):
    """A subclass with keyword-only fields."""

    z: int
    w: int = 9


@dataclass(slots=True)
class Model:
    """`Point` as a dataclass."""

    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)


def test_init_by_position_and_by_name() -> None:
    assert (Point(1).x, Point(1).y, Point(1).tags) == (1, 2, [])
    assert Point(1, 5).total == 6
    assert Point(x=3, tags=["a"]).tags == ["a"]


def test_every_instance_has_its_own_default() -> None:
    one, two = Point(1), Point(1)
    one.tags.append("a")
    assert two.tags == []


@pytest.mark.parametrize(
    "args", [((), {}), ((1, 2, [], 4), {}), ((1,), {"q": 2}), ((1,), {"x": 2})]
)
def test_errors_of_dataclasses_are_raised(args: Any) -> None:
    for cls in (Point, Model):
        with pytest.raises(TypeError, match="__init__"):
            cls(*args[0], **args[1])


def test_fields_are_slots() -> None:
    point: Any = Point(1)
    assert not hasattr(point, "__dict__")
    with pytest.raises(AttributeError):
        point.other = 1


def test_equality_is_by_class_and_fields() -> None:
    assert Point(1) == Point(1)
    assert Point(1) != Point(2)
    assert Point(1) != Derived(1, z=0)
    alike: Any = (1, 2, [])
    assert Point(1) != alike
    assert Empty() == Empty()
    assert Lonely("a") == Lonely("a") != Lonely("b")
    assert Itself(1) != Itself(1)


def test_hashes() -> None:
    assert len({Frozen("a"), Frozen("a", 0), Frozen("b")}) == 2
    assert hash(Empty()) == hash(Empty())
    assert len({Itself(1), Itself(1)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_repr_is_a_dataclasss() -> None:
    assert repr(Point(1)) == repr(Model(1)).replace("Model", "Point")
    assert repr(Empty()) == "Empty()"
    assert repr(Derived(1, z=3)) == "Derived(x=1, y=2, tags=[], z=3, w=9)"


def test_frozen_instances_can_not_be_changed() -> None:
    frozen: Any = Frozen("a")
    with pytest.raises(AttributeError, match=r"Frozen.name can't be changed"):
        frozen.name = "b"
    with pytest.raises(AttributeError, match=r"Frozen.size can't be deleted"):
        del frozen.size
    assert frozen == Frozen("a")


def test_pattern_matching() -> None:
    match Point(1, 7):
        case Point(x, y):
            assert (x, y) == (1, 7)
        case _:
            pytest.fail("no match")
    assert Derived.__match_args__ == ("x", "y", "tags")


def test_keywords_only() -> None:
    derived = Derived(1, 3, z=4)
    assert (derived.x, derived.y, derived.z, derived.w, derived.total) == (1, 3, 4, 9, 4)
    with pytest.raises(TypeError, match="positional"):
        Derived(1, 2, [], 3)  # type: ignore[call-arg]


def test_replace_and_dataclasses_replace() -> None:
    assert replace(Frozen("a", 3), name="b") == Frozen("b", 3)
    assert dataclasses.replace(Frozen("a", 3), size=4) == Frozen("a", 4)
    assert dataclasses.replace(Derived(1, z=4), w=5) == Derived(1, z=4, w=5)
    with pytest.raises(TypeError):
        replace(Frozen("a"), other=1)


def test_dataclasses_fields() -> None:
    fields = dataclasses.fields(Point)
    assert [one.name for one in fields] == ["x", "y", "tags"]
    assert [one.type for one in fields] == [int, int, list[str]]
    assert fields[1].default == 2
    assert dataclasses.asdict(Frozen("a", 1)) == {"name": "a", "size": 1}
    assert [one.name for one in dataclasses.fields(Derived)] == ["x", "y", "tags", "z", "w"]
    assert Point.__dataclass_fields__ is Point.__dataclass_fields__, "made once"


@pytest.mark.parametrize(
    "value", [Point(1, 2, ["a"]), Frozen("a", 3), Lonely("a"), Derived(1, z=2)]
)
def test_copies_and_pickles(value: Any) -> None:
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_an_own_repr_and_eq_are_kept() -> None:
    @slotted
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    assert repr(Own(1)) == "own"
    assert Own(1) == 5
    assert hash(Own(1)) is not None
    assert Own.__qualname__.endswith("test_an_own_repr_and_eq_are_kept.<locals>.Own")


def test_a_plain_subclass_uses_the_init_it_inherits() -> None:
    class Plain(Itself):
        pass

    assert Plain(4).x == 4
    assert Itself(5).x == 5


def test_value_class_of_core() -> None:
    partition = PartitionRegistration(b"t", 0, (1, 2), (1, 2), 1)
    assert dataclasses.replace(partition, leader=2).leader == 2
    assert {partition: 1}[PartitionRegistration(b"t", 0, (1, 2), (1, 2), 1)] == 1


def test_a_broker_is_imported_without_dataclasses() -> None:
    """Importing dataclasses, which imports `inspect`, takes a large part of the startup time."""
    code = (
        "import sys, tidelog.core.node.node; "
        "print([m for m in ('dataclasses', 'inspect', 'asyncio', 'logging', 'cramjam') "
        "if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
