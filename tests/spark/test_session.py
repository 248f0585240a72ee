"""A session has the recommended settings; if it can't start, the error is one line."""

import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.apps.spark.session import (
    NoJava,
    find_java,
    is_local,
    recommended,
    settle_environment,
)
from tidelog.spark import register


@pytest.mark.spark
def test_session_has_the_recommended_settings(spark: Any) -> None:
    wanted = recommended("local[2]")
    assert {key: spark.conf.get(key) for key in wanted} == wanted
    assert spark.range(10).count() == 10


@pytest.mark.spark
def test_streams_of_a_session_share_an_environment_that_is_safe_for_threads(spark: Any) -> None:
    """With Spark's HashMap, streams that start at the same time damaged it, and tasks failed."""
    own = spark.newSession()
    register(own)
    for session in (spark, own):  # `spark_session` has registered the format in the first one
        sources = session._jsparkSession.sessionState().dataSourceManager()
        environment = sources.lookupDataSource("tidelog").dataSourceCls().envVars()
        assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
        assert environment["PYTHONHASHSEED"] == "0"


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


def test_an_old_java_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="11"):
        find_java()


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,512]"])
def test_a_local_master_uses_loopback(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert is_local(master)
    assert is_local("spark://127.0.0.1:7077")
    assert recommended(master)["spark.driver.host"] == "127.0.0.1"
    settle_environment(master)
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://spark-1:7077", "spark://10.0.0.1:7077", "yarn"])
def test_a_remote_master_does_not_use_loopback(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    settle_environment(master)
    assert "SPARK_LOCAL_IP" not in os.environ
    assert not [key for key in recommended(master) if key.startswith("spark.driver.")]
