"""A made-up outcome and history of the demo, for tests of its report."""

from tidelog.apps.demo.history import IN_SYNC_AGAIN, KILLED, LANDED, PLACE, RESTARTED, History
from tidelog.apps.demo.observer import Round, Sample
from tidelog.apps.demo.outcome import Audited, Failover, Outcome, Records, SparkPart, Step, Sums
from tidelog.apps.demo.timeline import Batch, Timeline, build_timeline

SECONDS = 8
KILLED_S, LED_S, BACK_S, WHOLE_S = 2.0, 2.2, 4.0, 4.4
ROWS_A_SECOND = 500


def a_timeline(*, landed: bool = True) -> Timeline:
    return build_timeline(a_history(landed=landed).events)


def a_history(*, landed: bool = True) -> History:
    """Broker 1 leads and is killed; broker 2 leads; broker 1 is restarted."""
    history = History()
    history.began_s = 0.0
    history.add_rounds(_round(tick / 20) for tick in range(SECONDS * 20))
    history.add(KILLED, KILLED_S, 1, "kill -9 broker 1")
    history.add(RESTARTED, BACK_S, 1, "broker 1 restarts")
    history.add(IN_SYNC_AGAIN, WHOLE_S, text="all in sync again", fields=PLACE)
    for at_s, orders in ((1.0, 400), (2.5, 1_000), (5.0, 2_300), (7.5, 4_000)):
        if landed:
            history.add(LANDED, at_s, fields={"orders": orders})
    return history


def _round(at_s: float) -> Round:
    newest = int(at_s * ROWS_A_SECOND)
    old = int(KILLED_S * ROWS_A_SECOND)
    if at_s < KILLED_S:
        return Round(at_s, {b: _sample(1, 0, newest, (1, 2, 3), b == 1) for b in (1, 2, 3)})
    if at_s < LED_S:
        dead = _sample(1, 0, old, (1, 2, 3), False)
        return Round(at_s, {1: None, 2: dead, 3: dead})
    isr = (2, 3) if at_s < WHOLE_S else (1, 2, 3)
    now = {b: _sample(2, 1, newest, isr, b == 2) for b in (1, 2, 3)}
    if at_s < BACK_S:
        return Round(at_s, {**now, 1: None})
    if at_s < WHOLE_S:
        return Round(at_s, {**now, 1: _sample(2, 1, old, isr, False)})
    return Round(at_s, now)


def _sample(leader: int, epoch: int, end: int, isr: tuple[int, ...], leads: bool) -> Sample:
    """Return a sample with eight uncommitted records; a restarted replica has high watermark 0."""
    start = int(KILLED_S * ROWS_A_SECOND)
    epochs = ((0, 0), (1, start))[: epoch + 1]
    back = len(isr) < 3 and end == start
    return Sample(leader, epoch, epoch, leads, end, 0 if back else max(end - 8, 0), isr, epochs)


def an_outcome(*, lost: list[int] | None = None, damage: int = 0, spark: bool = True) -> Outcome:
    """Return an outcome that holds, unless records are lost or damaged."""
    log = Records("log", 4_000, 4_000 - len(lost or []), lost or [], 0, 0, 0)
    return Outcome(
        brokers=3,
        started_s=0.4,
        seconds=8.0,
        failover=Failover(1, 2, 1, 0.123, 0.4, [1, 2, 3]),
        sent=4_000,
        failed=0,
        log=log,
        spark=_spark_part(damage) if spark else None,
        steps=[
            Step(0.4, "three brokers at localhost:38143,localhost:42113,localhost:41393"),
            Step(2.0, "kill -9 for broker 1, the leader"),
        ],
    )


def _spark_part(damage: int) -> SparkPart:
    whole = Records("lake", 4_000, 4_000, [], 0, 0, 0)
    sums = Sums("table", 3, 3_999, 20_000_000, [], [])
    findings = [{"kind": "crc", "text": "<b> is not what it was"}] * damage
    folders = [{"replica": f"broker-{b}", "files": 3, "records": 4_000} for b in (1, 2, 3)]
    batches = [
        Batch("land", 0, 1.0, 1_500, 0, 1_500, 900, 12, "calm"),
        Batch("land", 1, 2.5, 1_100, 1_500, 2_600, 300, 4, "the leader was down"),
    ]
    return SparkPart(
        version="4.3.0",
        java="17.0.15",
        session_s=8.0,
        first_batch_s=15.0,
        batches=batches,
        lake=whole,
        table=sums,
        topic=sums._replace(place="topic"),
        audit=Audited(folders, findings, damage, 2.5),
    )
