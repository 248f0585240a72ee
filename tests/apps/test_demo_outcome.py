"""The demo succeeds only if each of its checks does; it reads its results back correctly."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from demo_outcome import an_outcome

from tidelog.apps.demo import orders
from tidelog.apps.demo.orders import Sum
from tidelog.apps.demo.outcome import Outcome, SparkPart
from tidelog.apps.demo.report.page import verdict
from tidelog.apps.demo.spark_watch import audited, phase, read_lake, read_table
from tidelog.apps.demo.timeline import Mark

Change = Callable[[Outcome], Outcome]


def spark_of(outcome: Outcome) -> SparkPart:
    assert outcome.spark is not None
    return outcome.spark


def with_spark(change: Callable[[SparkPart], SparkPart]) -> Change:
    return lambda outcome: outcome._replace(spark=change(spark_of(outcome)))


WRONG: dict[str, Change] = {
    "an order failed": lambda o: o._replace(failed=1),
    "an order got no response": lambda o: o._replace(sent=o.sent + 1),
    "lost in the log": lambda o: o._replace(log=o.log._replace(lost=[3])),
    "no other broker became leader": lambda o: o._replace(
        failover=o.failover._replace(successor=o.failover.killed)
    ),
    "a replica stayed out of sync": lambda o: o._replace(
        failover=o.failover._replace(in_sync=[1, 2])
    ),
    "twice in the lake": with_spark(lambda s: s._replace(lake=s.lake._replace(repeated=1))),
    "foreign rows in the lake": with_spark(
        lambda s: s._replace(lake=s.lake._replace(unexpected=1))
    ),
    "a window is missing": with_spark(
        lambda s: s._replace(table=s.table._replace(missing=[Sum(0, "north", 1, 1)]))
    ),
    "a sum is wrong": with_spark(
        lambda s: s._replace(topic=s.topic._replace(wrong=[Sum(0, "north", 1, 1)]))
    ),
    "no window at all": with_spark(lambda s: s._replace(topic=s.topic._replace(windows=0))),
    "damage on a disk": with_spark(lambda s: s._replace(audit=s.audit._replace(damage=1))),
    "nothing was audited": with_spark(lambda s: s._replace(audit=s.audit._replace(replicas=[]))),
}


def test_correct_outcome_holds() -> None:
    assert an_outcome().holds
    assert an_outcome(spark=False).holds


@pytest.mark.parametrize("what", WRONG)
def test_single_error_makes_the_outcome_fail(what: str) -> None:
    assert not WRONG[what](an_outcome()).holds


def test_the_verdict_names_each_difference() -> None:
    changed = WRONG["a sum is wrong"](an_outcome())
    assert "lake equal, sums differ, audit passes" in verdict(changed)
    assert "lake differs" in verdict(WRONG["twice in the lake"](an_outcome()))
    assert "audit FAILS" in verdict(WRONG["damage on a disk"](an_outcome()))


def lake_row(number: int) -> dict[str, Any]:
    return {
        "offset": number + 5,
        "value": orders.value(number),
        "number": number,
        "shop": orders.shop(number),
        "cents": orders.cents(number),
    }


def write_parquet(folder: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")


def test_row_that_differs_from_its_value_is_not_an_order(tmp_path: Path) -> None:
    wrong = {**lake_row(2), "cents": 1}
    write_parquet(tmp_path / "data" / "topic=orders", [lake_row(1), wrong, lake_row(0)])
    write_parquet(tmp_path / "rejected" / "topic=orders", [lake_row(9)])
    assert read_lake(str(tmp_path)) == [(5, 0), (6, 1), (7, -1)]


def test_windows_are_read_by_their_start(tmp_path: Path) -> None:
    start = datetime(2026, 11, 16, 3, 0, 5, tzinfo=UTC)
    row = {"window_start": start, "window_end": start, "shop": "east", "orders": 2, "cents": 300}
    write_parquet(tmp_path / "data" / "date=2026-11-16", [row])
    [found] = read_table(str(tmp_path))
    assert found == Sum(int(start.timestamp()) * 1000, "east", 2, 300)


def test_batch_belongs_to_the_phase_in_which_it_ended() -> None:
    marks = [Mark(5.0, "", "kill"), Mark(7.0, "", "start"), Mark(8.0, "", "whole")]
    phases = [phase(at_s, marks) for at_s in (1.0, 5.0, 7.5, 8.0)]
    assert phases == ["all in sync", "one broker down", "one broker down", "all in sync again"]


def test_audit_lists_replicas_with_records_and_internal_topics_last() -> None:
    def partition(topic: str, records: int) -> dict[str, Any]:
        replica = {
            "replica": "broker-1",
            "log_end": records,
            "high_watermark": records,
            "epochs": [[0, 0], [2, 7]],
            "batches": 1,
            "records": records,
            "bytes": 10,
        }
        return {"topic": topic, "partition": 0, "replicas": [replica]}

    topics = [partition("__ledger", 3), partition("empty", 0), partition("orders", 9)]
    report = {"partitions": topics, "findings": [], "damage": 0}
    found = audited({"report": report, "took_s": 1.5})
    assert [row["partition"] for row in found.replicas] == ["orders/0", "__ledger/0"]
    assert found.replicas[0]["epoch:start"] == "0:0 2:7"
    assert found.holds
