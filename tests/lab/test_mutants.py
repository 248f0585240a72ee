"""Mutants load, leave the shipped code alone, and are found."""

import sys

import pytest

from tidelog.core.replication import fencing
from tidelog.lab.mutants.hunt import ESCAPED, MUTANTS, hunt, hunt_with_checker, hunt_with_simulator
from tidelog.lab.mutants.mutant import Change, Mutant, MutatedPackage, StaleMutant

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
QUICK = (
    "join-before-the-epoch-start",
    "shrink-taken-for-granted",
    "controller-compares-no-version",
    "diverging-fetch-counts",
    "epoch-not-cached-by-new-leader",
    "leader-sees-no-divergence",
    "high-watermark-goes-back",
    "unknown-follower-does-not-hold-back",
    "isr-does-not-matter",
    "follower-trusts-the-leaders-high-watermark",
    "stale-registration",
    "acknowledge-before-commit",
)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS + ESCAPED, ids=lambda m: m.name)
def test_every_mutant_still_fits_the_source(mutant: Mutant) -> None:
    with MutatedPackage(mutant.name, mutant.changes):
        pass


def test_mutant_of_a_missing_line_fails_to_load() -> None:
    gone = Change("tidelog.core.replication.fencing", "no such line", "")
    with pytest.raises(StaleMutant, match="no such line"), MutatedPackage("gone", [gone]):
        pass


def test_mutated_package_is_a_copy_and_is_removed_completely() -> None:
    mutant = BY_NAME["fetch-from-an-older-epoch"]
    with MutatedPackage(mutant.name, mutant.changes) as package:
        copy = package.load("tidelog.core.replication.fencing")
        assert copy.leader_epoch_error(known=2, sent=1).name == "NONE"
        assert fencing.leader_epoch_error(known=2, sent=1).name == "FENCED_LEADER_EPOCH"
        assert package.find_spec(f"{package.root}.no_such_module") is None
    assert not [name for name in sys.modules if name.startswith(package.root)]


# `make mutants` hunts all of them; the last takes a quarter of a minute.
@pytest.mark.parametrize("name", [*QUICK, pytest.param("torn-tail-served", marks=pytest.mark.ci)])
def test_mutant_is_found(name: str) -> None:
    catch = hunt(BY_NAME[name])
    assert catch.found, catch.broke
    assert catch.steps


def test_harmless_change_is_not_found() -> None:
    harmless = Change("tidelog.core.replication.fencing", "sent is None or", "sent in (None,) or")
    by_checker = Mutant("harmless", "", "", (harmless,), BY_NAME["stale-registration"].bounds)
    assert not hunt_with_checker(by_checker, 5_000).found
    assert not hunt_with_simulator(Mutant("harmless", "", "", (harmless,)), 1).found


def test_assertion_in_core_counts_as_found() -> None:
    wrong = Change(
        "tidelog.core.replication.high_watermark",
        "    return max(current, slowest)",
        "    return max(current, slowest) + 1",
    )
    catch = hunt_with_checker(
        Mutant("beyond-the-end", "", "", (wrong,), BY_NAME["stale-registration"].bounds)
    )
    assert catch.found
    assert catch.broke.startswith("assertion:")
