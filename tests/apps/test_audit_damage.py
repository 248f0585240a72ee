"""The audit reports every kind of damage at its place, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest
from audit_in_process import audit_in_process
from damage_case import Case, matches
from damage_cases import CASES
from mini_cluster import MiniCluster, make_mini_cluster

from tidelog.apps.audit.report.report import Report
from tidelog.apps.audit.source.planning import Planned, plan

UNCUT = 0
STRETCH_BYTES = 700
"""Segments of three thousand bytes in four or five stretches."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undamaged cluster to copy, because writing one takes most of the time."""
    root = tmp_path_factory.mktemp("sound") / "cluster"
    make_mini_cluster(root)
    return root


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_the_damage_is_reported(case: Case, tmp_path: Path, sound: Path) -> None:
    root = tmp_path / "cluster"
    if case.made is None:
        shutil.copytree(sound, root)
        cluster = MiniCluster(root)
    else:
        cluster = make_mini_cluster(root, case.made())
    expected = case.do(cluster)
    for split_bytes in (UNCUT, STRETCH_BYTES):
        found = audit_in_process([str(root)], split_bytes=split_bytes).findings
        assert matches(found, expected), (split_bytes, found, expected)


@pytest.mark.parametrize("damaged", [(2,), (2, 3), (1, 2, 3)])
def test_repair_names_a_sound_replica_if_there_is_one(
    damaged: tuple[int, ...], tmp_path: Path
) -> None:
    cluster = make_mini_cluster(tmp_path / "cluster")
    for broker in damaged:
        at = cluster.batches(broker)[5 + broker]
        cluster.flip(cluster.path(at, broker), at.position + 120)
    result = audit_in_process([str(cluster.root)])
    (advice,) = Report(result.findings, result.partitions, 0).advice
    assert advice.damaged == [f"broker-{broker}" for broker in damaged]
    assert advice.sound == [f"broker-{n}" for n in (1, 2, 3) if n not in damaged]
    assert ("Delete no folder" in advice.text) == (not advice.sound)


def test_segment_deleted_after_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_mini_cluster(tmp_path / "cluster")
    gone = cluster.path(cluster.batches(1)[0], 1)
    names = os.listdir(gone.parent)
    gone.unlink()
    listdir = os.listdir
    monkeypatch.setattr("os.listdir", lambda at: names if at == str(gone.parent) else listdir(at))
    monkeypatch.setattr("os.path.exists", lambda _: True)
    units = plan(Planned((str(cluster.root),)))
    assert [u.stretch.end for u in units if u.stretch and u.stretch.path == str(gone)] == [0]
