"""A pipeline in a separate process that kills itself with -9 at a named place.

`python pipeline_driver.py FILE PLACE BATCH`: places are `before-commit` (files are written, the
commit record is not), `after-record` (committed, no file is moved yet), `before-done` (a batch of a
backfill is in the topic, but not marked as done).
"""

import os
import signal
import sys
import threading
from typing import Any
from unittest import mock

from tidelog.apps.pipeline import runner
from tidelog.apps.pipeline.backfill import Agenda
from tidelog.apps.pipeline.lake.commit import Lake
from tidelog.apps.pipeline.pipeline_file import read_plan


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str, batch: int) -> None:
    commit, move_all, mark_done = Lake.commit, Lake._move_all, Agenda.mark_done

    def commit_or_die(lake: Lake, query: str, number: int, files: Any) -> None:
        if place == "before-commit" and number == batch:
            die()
        commit(lake, query, number, files)

    def move_or_die(lake: Lake) -> None:
        if place == "after-record" and lake.batch == batch and os.listdir(lake.staging):
            die()
        move_all(lake)

    def mark_or_die(agenda: Agenda) -> None:
        if place == "before-done" and agenda.done == batch:
            die()
        mark_done(agenda)

    mock.patch.object(Lake, "commit", commit_or_die).start()
    mock.patch.object(Lake, "_move_all", move_or_die).start()
    mock.patch.object(Agenda, "mark_done", mark_or_die).start()


def main() -> None:
    file, place, batch = sys.argv[1:]
    arm(place, int(batch))
    plan = read_plan(file)
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with runner.own_spark(plan.name, "local[2]", settings, None) as spark:
        runner.run_plan(spark, plan, threading.Event(), lambda _: None)
    sys.exit("the pipeline ended, but this process should have been killed")


if __name__ == "__main__":
    main()
