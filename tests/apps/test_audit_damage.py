"""Every kind of damage is told where it is, and nothing else is told."""

from pathlib import Path

import pytest
from audit_in_process import audit_in_process
from damage_cases import CASES, Case, Expected
from mini_cluster import make_mini_cluster

from tidelog.apps.audit.report.findings import Finding


def matches(found: Finding, expected: Expected) -> bool:
    return (
        (found.kind, found.file, found.replica) == (expected.kind, expected.file, expected.replica)
        and expected.position in (None, found.position)
        and expected.offsets in (None, (found.first_offset, found.last_offset))
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damage_is_told_and_nothing_else(case: Case, tmp_path: Path) -> None:
    cluster = make_mini_cluster(tmp_path / "c", case.made() if case.made else None)
    expected = case.do(cluster)
    found = audit_in_process([str(tmp_path / "c")]).findings
    assert len(found) == len(expected), found
    for finding, wanted in zip(found, expected, strict=True):
        assert matches(finding, wanted), (finding, wanted)
