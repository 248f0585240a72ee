"""History files of a story, of the simulator and of the demo, as the console's history."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from console_client import serve

from tidelog.apps.cli.main import cli
from tidelog.apps.console.history.diff import diff
from tidelog.apps.console.history.event_file import CannotRead, EventFile
from tidelog.apps.console.history.file_collector import FileTarget
from tidelog.core.history import HistoryEvent


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> EventFile:
    path = tmp_path_factory.mktemp("story") / "unclean.jsonl"
    arguments = ["story", "play", "unclean-election-loses-and-says-so", "--policy", "leader-epoch"]
    found = CliRunner().invoke(cli, [*arguments, "--history", str(path)])
    assert found.exit_code == 0, found.output
    return EventFile(str(path))


def test_story_shows_leaders_logs_and_losses(story: EventFile) -> None:
    span = story.span()
    assert span is not None
    found = story.state_at(span.to_ms)
    assert found is not None
    states, metadata = found
    (topic,) = metadata.topics.values()
    leader = topic.partitions[0].leader
    assert leader in states
    ends = {
        broker: replica["log_end_offset"]
        for broker, state in states.items()
        for replica in state["partitions"]
    }
    assert all(isinstance(end, int) for end in ends.values())
    assert any(loss["committed"] for s in states.values() for loss in s["losses"]["recent"])
    kinds = {mark["kind"] for mark in story.timeline(None, None)["marks"]}
    assert {"leader", "unclean", "loss", "broker"} <= kinds
    assert "replica_sampled" not in {
        each["event"] for each in story.events(None, None, None, None, 1000)
    }


def test_each_moment_depends_on_earlier_events_only(story: EventFile) -> None:
    span = story.span()
    assert span is not None
    assert story.state_at(span.from_ms - 1) is None
    moments = [story.state_at(at_ms) for at_ms in range(span.from_ms, span.to_ms + 1)]
    assert moments == [story.state_at(at_ms) for at_ms in range(span.from_ms, span.to_ms + 1)]
    epochs = [
        max(
            (p.leader_epoch for t in m[1].topics.values() for p in t.partitions.values()),
            default=-1,
        )
        for m in moments
        if m is not None
    ]
    assert epochs == sorted(epochs)
    found = diff(story, span.from_ms, span.to_ms)
    assert found is not None
    assert found["losses"]


def test_file_is_served_as_pages(story: EventFile, tmp_path: Path) -> None:
    span = story.span()
    assert span is not None
    with serve(FileTarget(), tmp_path, file=story) as client:
        session = client.read("session")
        assert session["source"] == "file unclean.jsonl"
        assert session["missing"].startswith("this file does not have: ")
        assert session["history"]["to_ms"] == span.to_ms
        overview = client.read("overview")
        (topic,) = [each["topic"] for each in overview["topics"]]
        now = client.read(f"partitions/{topic}/0")
        assert {"leader", "high-watermark", "loss"} <= {e["topic"] for e in now["explain"]}
        assert "unclean_election" in {each["event"] for each in now["events"]}
        for at_ms in range(span.from_ms + 5, span.to_ms, 10):
            overview = client.read(f"overview?at={at_ms}")
            if overview["topics"]:
                past = client.read(f"partitions/{topic}/0?at={at_ms}")
                assert past["sampled_at_ms"] <= at_ms
        with client.page(f"partitions/{topic}/0") as page:
            assert page.until(bool)["partition"] == now["partition"]
        assert client.get("/api/groups").status == 503
        transactions = client.read("transactions")
        assert (transactions["transactions"], transactions["open"]) == (None, [])
        assert client.get("/api/transactions/any").status == 400
        marks = client.read(f"timeline?topic={topic}&partition=0")["marks"]
        assert marks == sorted(marks, key=lambda each: each["at_ms"])


def test_simulated_seed_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "seed.jsonl"
    found = CliRunner().invoke(cli, ["sim", "replay", "5", "--history", str(path)])
    assert found.exit_code == 0, found.output
    file = EventFile(str(path))
    span = file.span()
    assert span is not None
    moments = [file.state_at(at_ms) for at_ms in range(span.from_ms, span.to_ms, 500)]
    replicas = [
        each
        for moment in moments
        if moment is not None
        for state in moment[0].values()
        for each in state["partitions"]
        if each["log_end_offset"] is not None
    ]
    assert replicas
    assert any(each["followers"] for each in replicas)
    assert all(each["high_watermark"] <= each["log_end_offset"] for each in replicas)


def test_samples_of_the_demo_are_shown(tmp_path: Path) -> None:
    """Such a sample has no followers: the pages compare the replicas' own log ends."""
    about = {"topic": "orders", "partition": 0, "leader": 1, "leader_epoch": 0}
    more = {"partition_epoch": 0, "isr": [1, 2], "epochs": [[0, 0]], "high_watermark": 5}
    events = [
        HistoryEvent(
            1000 + broker,
            broker,
            "replica_sampled",
            {**about, **more, "is_leader": broker == 1, "log_end_offset": 9 if broker == 1 else 5},
        )
        for broker in (1, 2)
    ]
    events.append(HistoryEvent(2000, 2, "broker_killed", {}))
    file = written(tmp_path, events)
    assert "eligible leaders (ELR)" in file.missing
    with serve(FileTarget(), tmp_path / "static", file=file) as client:
        found = client.read("partitions/orders/0?at=1500")
        (watermark,) = [e for e in found["explain"] if e["topic"] == "high-watermark"]
        assert "the log of broker 2, in the ISR, ends at 5" in watermark["text"]
        assert [b["id"] for b in client.read("overview?at=2000")["brokers"] if b["fenced"]] == [2]


def test_log_of_a_broker_without_samples_is_shown(tmp_path: Path) -> None:
    about = {"topic": "orders", "partition": 0, "leader_epoch": 3}
    events = [
        HistoryEvent(1000, 1, "leadership_gained", {**about, "offset": 7, "isr": [1, 2]}),
        HistoryEvent(1500, 1, "isr_shrunk", {**about, "isr": [1], "left": [2]}),
    ]
    file = written(tmp_path, events)
    assert "log end offsets and high watermarks" in file.missing
    with serve(FileTarget(), tmp_path / "static", file=file) as client:
        found = client.read("partitions/orders/0")
        assert (found["partition"]["leader"], found["partition"]["isr"]) == (1, [1])
        assert any("no samples of log ends" in each["text"] for each in found["explain"])
        client.read("overview")
        client.read("brokers/1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no events"),
        ("{}\n", "line 1 of "),
        ("not json\n", "line 1 of "),
        ("[1]\n", "line 1 of "),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(text)
    with pytest.raises(CannotRead, match=message):
        EventFile(str(path))
    found = CliRunner().invoke(cli, ["console", "--history", str(path)])
    assert found.exit_code == 1
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_event_with_wrong_fields_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match="event 1 of "):
        written(tmp_path, [HistoryEvent(1, 1, "isr_shrunk", {"topic": "t", "partition": 0})])


def written(folder: Path, events: list[HistoryEvent]) -> EventFile:
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(each.as_data()) + "\n" for each in events))
    return EventFile(str(path))
