"""Finding, checking and rendering stories."""

from pathlib import Path

import pytest

from tidelog.lab.story.grammar import StoryError, parse
from tidelog.lab.story.library import check, find, list_stories, story_folder
from tidelog.lab.story.render import as_data, as_mermaid
from tidelog.lab.story.runner import play

GOOD = "# Fine\n\ncluster A\nproduce m1\ncheck hw-below-leo\n"
BAD = "# Not fine\n\ncluster A\nexpect leader A\nexpect A LEO=7\n"
TOLD = """\
# A moral
#
# A reason.

given:
    cluster A B

# B asks; nobody hears.
produce m1
fetch B lose=reply
----
B -> A  Fetch offset=0 epoch=0
A -> B  [m1] HW=0  (lost)

crash B
expect A LEO=1
# Thus.
"""


def test_folders_and_files_are_checked(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "good.txt").write_text(GOOD)
    (tmp_path / "bad.txt").write_text(BAD)
    (tmp_path / "broken.txt").write_text("fetsh\n----\n----\n")
    verdicts = {Path(v.path).name: v for v in check([tmp_path])}
    assert verdicts["good.txt"].passed
    assert verdicts["bad.txt"].problems == (f"{tmp_path}/bad.txt:5: A has LEO=0, not 7",)
    assert "two outputs" in verdicts["broken.txt"].problems[0]
    assert verdicts["broken.txt"].problems[0].startswith(f"{tmp_path}/broken.txt:3: ")


def test_empty_folder_fails_the_check(tmp_path: Path) -> None:
    (verdict,) = check([tmp_path])
    assert not verdict.passed


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe")
    huge = tmp_path / "huge.txt"
    huge.write_text("#" * (1 << 20) + "\n")
    for path, message in [
        (tmp_path / "none.txt", "No such file"),
        (binary, "not UTF-8"),
        (huge, "larger than"),
    ]:
        (verdict,) = check([path])
        assert message in verdict.problems[0]


def test_stories_are_found_by_name() -> None:
    path = story_folder() / "truncation" / "hw-loses-acked-record.txt"
    names = ["hw-loses-acked-record", "truncation/hw-loses-acked-record.txt", str(path)]
    assert {find(name) for name in names} == {path}
    assert str(path) in {story.path for story in list_stories()}
    with pytest.raises(StoryError, match="did you mean hw-loses-acked-record"):
        find("hw-looses-acked-record")


def test_as_data() -> None:
    data = as_data(play(parse(TOLD), "leader-epoch"))
    assert data["passed"] is True
    frames = data["frames"]
    assert isinstance(frames, list)
    fetch = frames[2]
    assert fetch["command"] == "fetch B lose=reply"
    assert fetch["messages"][1] == {
        "from": "A",
        "to": "B",
        "text": "[m1] HW=0  (lost)",
        "lost": True,
    }
    assert fetch["replicas"]["A"] == "leader   epoch=0 LEO=1 HW=0 log=[m1@0]"


def test_as_mermaid() -> None:
    lines = list(as_mermaid(play(parse(TOLD), "leader-epoch")))
    assert lines[:3] == ["sequenceDiagram", "    participant A", "    participant B"]
    assert "    A-xB: [m1] HW=0  (lost)" in lines
    assert "    Note right of B: is down" in lines
    assert "    Note over A,B: fetch B lose=reply" in lines
