"""No topic name leads outside the data folder, whichever request contains it."""

import json
from pathlib import Path

import pytest
from api_cluster import CREATE_TOPICS, METADATA, creatable, errors
from dispatch_cluster import DispatchCluster

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.errors import ErrorCode
from tidelog.core.storage import layout
from tidelog.core.storage.layout import InvalidTopic
from tidelog.core.types import TopicPartition
from tidelog.shell.os_disk import OsDisk

ESCAPES = [
    *("", ".", "..", "../x", "a/b", "/etc/passwd", "a/../../b", "..\\x", "a\\b", "~", "a\0b", "\0"),
    *("a\nb", " ", "ü", "a%2fb", "a b", "-\u2044", "n" * 250, "n" * 5000, "../" * 50),
]


def shown(name: str) -> str:
    return repr(name[:20])


@pytest.fixture(scope="module")
def cluster() -> DispatchCluster:
    cluster = DispatchCluster(brokers=(1,))
    cluster.start_all()
    return cluster


def folders(cluster: DispatchCluster) -> set[str]:
    disk = cluster.disks[1]
    return {*disk.directories, *(name.rpartition("/")[0] for name in disk.files)}


@pytest.mark.parametrize("name", ESCAPES, ids=shown)
@pytest.mark.parametrize("version", [2, 7])
def test_create_topics_refuses_names_outside_the_folder(
    cluster: DispatchCluster, name: str, version: int
) -> None:
    before = folders(cluster)
    asked = {"topics": [creatable(name, 1, 1)], "timeout_ms": 1000, "validate_only": False}
    answer = cluster.exchange(cluster.dispatch(1), CREATE_TOPICS, version, asked)
    assert errors(answer["topics"]) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    cluster.run(100)
    assert folders(cluster) == before


@pytest.mark.parametrize("name", ESCAPES, ids=shown)
@pytest.mark.parametrize("version", [1, 8, 13])
def test_metadata_creates_no_topic_outside_the_folder(
    cluster: DispatchCluster, name: str, version: int
) -> None:
    before = folders(cluster)
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    answer = cluster.exchange(cluster.dispatch(1), METADATA, version, asked)
    [told] = answer["topics"]
    assert told["error_code"] != ErrorCode.NONE
    cluster.run(100)
    assert folders(cluster) == before


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "/etc", "a\0b", "n" * 250], ids=shown)
def test_invalid_name_in_the_store_creates_no_folder(name: str) -> None:
    """The broker fails with an error before it creates a folder."""
    cluster = DispatchCluster(brokers=(1,))
    cluster.start_all()
    cluster.create("victim")
    before = folders(cluster)
    registration = next(
        kv.value for kv in cluster.store.range("").kvs if kv.key.startswith(keys.TOPIC_IDS)
    )
    topic_id = b"by hand".rjust(16)
    topic = json.dumps({"topic_id": topic_id.hex(), "partition_count": 1}).encode()
    partition = Put(keys.partition(topic_id, 0), registration)
    cluster.store.txn((), (partition, Put(keys.topic_name(name), topic)))
    cluster._notify()
    with pytest.raises(InvalidTopic):
        cluster.run(500)
    assert folders(cluster) == before


@pytest.mark.parametrize("name", ESCAPES, ids=shown)
def test_folders_of_partitions(name: str) -> None:
    """Every path of a partition is built by this function."""
    with pytest.raises(InvalidTopic):
        layout.partition_dir(TopicPartition(name, 0))


@pytest.mark.parametrize("name", ["a.b_c-D0", "n" * 249, "...", "-", "a..b"])
def test_unusual_valid_names_stay_inside_the_folder(name: str, tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path / "data"))
    folder = layout.partition_dir(TopicPartition(name, 0))
    disk.make_dir(folder)
    disk.close()
    assert (tmp_path / "data" / folder).resolve().parent == (tmp_path / "data").resolve()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
