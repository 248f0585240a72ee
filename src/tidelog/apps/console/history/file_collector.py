"""Replaces the collector if a history file is shown: the last moment of the file is the present."""

from threading import Thread

from tidelog.apps.console.collector import Collector, Update
from tidelog.apps.console.failure import UNAVAILABLE, Failure
from tidelog.apps.console.history.event_file import EventFile
from tidelog.apps.console.recorder import NoRecorder
from tidelog.apps.console.sample import Sample, past_sample
from tidelog.apps.console.target import Target
from tidelog.core.types import BrokerId, TopicPartition


class FileTarget:
    """The target of a history file: there is no cluster to connect to."""

    data: str | None = None

    def security(self) -> None:
        return None

    def bootstrap(self) -> str:
        raise Failure(
            UNAVAILABLE, "a history file has no records, groups and configs", "see its partitions"
        )

    def processes(self) -> dict[BrokerId, str]:
        return {}


class FileCollector(Collector):
    """Publishes the last moment of a file to each page that opens."""

    def __init__(self, target: Target, file: EventFile) -> None:
        super().__init__(target, NoRecorder())
        span = file.span()
        assert span is not None, "a file has at least one event"
        found = file.state_at(span.to_ms)
        assert found is not None
        self._update = Update(past_sample(span.to_ms, *found, None), None)

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def stop(self) -> None:
        """Do nothing: there is no thread."""

    def page_opened(self, focus: TopicPartition | None = None) -> None:  # noqa: ARG002
        Thread(target=self.publish, args=(self._update,), daemon=True).start()

    def page_closed(self, focus: TopicPartition | None = None) -> None:
        """Nothing is sampled."""

    def hurry(self) -> None:
        """Nothing changes."""

    def latest(self) -> Update | None:
        return self._update

    def fresh(self) -> Sample:
        assert self._update.sample is not None
        return self._update.sample
