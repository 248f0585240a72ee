"""A session starts with what we recommend, and says so in one line when it can't."""

from pathlib import Path
from typing import Any

import pytest

from tidelog.apps.spark.session import RECOMMENDED, NoJava, find_java


@pytest.mark.spark
def test_session_has_the_recommended_settings(spark: Any) -> None:
    assert {key: spark.conf.get(key) for key in RECOMMENDED} == dict(RECOMMENDED)
    assert spark.range(10).count() == 10


def test_without_java_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="openjdk-17-jre-headless"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoJava, match="no java in PATH"):
        find_java()


def test_java_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="11"):
        find_java()
