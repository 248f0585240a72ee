"""Who leads, who is in sync, who is not, since when and why."""

from tidelog.apps.explain.situation import (
    BAD,
    INFO,
    OK,
    WARN,
    Explanation,
    Situation,
    count,
    duration,
    named,
)
from tidelog.apps.views.broker import State
from tidelog.apps.views.partition import ReplicaView

ISR, LEADER = "isr", "leader"
SILENT_MS = 2_000
"""After this time without a fetch, a member of the ISR is mentioned: it may hang."""


def explain_leader(now: Situation) -> list[Explanation]:
    """Say who leads, or why there is no leader, and which replica wrongly believes that it
    leads."""
    view = now.view
    found = []
    if view.leader is None:
        found.append(_no_leader(now))
    else:
        row = now.replica(view.leader)
        if row is not None and row.unreachable is not None:
            found.append(
                Explanation(
                    LEADER,
                    WARN,
                    f"Broker {view.leader} leads in epoch {view.leader_epoch} and did not respond:"
                    f" {row.unreachable}.",
                    "If it hangs or is dead, another replica is elected when its session ends.",
                )
            )
        else:
            found.append(_leads(now))
    found += [
        Explanation(
            LEADER,
            WARN,
            f"Broker {row.broker} still believes that it leads, in epoch {row.leader_epoch}; the"
            f" newest epoch is {view.leader_epoch}.",
            "It can't commit records: the replicas that its HW waits for fetch from the new leader."
            " What it appends in its old epoch will be truncated.",
        )
        for row in view.replicas
        if row.role == "leader" and row.broker != view.leader
    ]
    return found


def _leads(now: Situation) -> Explanation:
    view = now.view
    preferred = view.replicas[0].broker if view.replicas else view.leader
    text = f"Broker {view.leader} leads in epoch {view.leader_epoch}."
    if preferred == view.leader:
        return Explanation(LEADER, OK, text)
    return Explanation(
        LEADER,
        INFO,
        f"{text} The preferred leader is broker {preferred}.",
        "Leadership returns to it automatically once it is in sync, or with"
        f" `tidelog partition elect {view.name}`.",
    )


def _no_leader(now: Situation) -> Explanation:
    view = now.view
    eligible = [*view.isr, *(view.elr or ())]
    away = [broker for broker in eligible if broker not in now.alive]
    text = "The partition has no leader: it can't be written or read."
    if away:
        text += f" Only {named(eligible)} may be elected; not in the cluster: {named(away)}."
        detail = "Start the broker, or one of them: it has every committed record."
    elif view.lost:
        text += f" {_begin(named(view.lost))} started without its log."
        detail = "Restore its folder, or elect another replica: "
        detail += f"`tidelog partition recover {view.name} --plan` shows what that would lose."
    elif not eligible:
        text += " No replica is known to have all committed records: ISR and ELR are empty."
        detail = f"`tidelog partition recover {view.name} --plan` compares the replicas' logs."
    else:
        detail = f"{_begin(named(eligible))} may be elected: the election is due."
    return Explanation(LEADER, BAD, text, detail)


def explain_isr(now: Situation) -> list[Explanation]:
    """Say which replicas are in sync, and for each that is not, since when and why."""
    view = now.view
    found = []
    if view.leader is None:
        found.append(_isr_without_leader(now))
    elif now.under_min_isr:
        found.append(_under_min_isr(now))
    elif view.min_isr is not None and len(view.isr) == view.min_isr < len(view.replicas):
        found.append(
            Explanation(
                ISR,
                INFO,
                f"The ISR has exactly the {count(view.min_isr, 'replica')} that"
                " min.insync.replicas requires: if it loses one more, acks=all is rejected.",
            )
        )
    if pending := now.pending:
        what = "add" if pending.kind == "expand" else "remove"
        target = "to the ISR" if pending.kind == "expand" else "from the ISR"
        found.append(
            Explanation(
                ISR,
                INFO,
                f"The leader has proposed to {what} {named(pending.brokers)} {target}; the"
                " controller has not decided yet.",
                "Until then the HW waits for the members of both the old and the proposed ISR.",
            )
        )
    seen = {each["broker"]: each for each in now.followers}
    for row in view.replicas:
        if view.leader in (None, row.broker):
            continue
        state = seen.get(row.broker, {})
        explained = _hanging(now, row, state) if row.in_isr else _out(now, row, state)
        found += [] if explained is None else [explained]
    if view.elr:
        found.append(
            Explanation(
                ISR,
                INFO,
                f"Eligible leader replicas: {named(view.elr)}. They were in the ISR when it fell"
                " below min.insync.replicas.",
                "The HW has not moved since, so each of them still has every committed record"
                " and may be elected.",
            )
        )
    if not found:
        replicas = len(view.replicas)
        one = "The only replica is in sync."
        text = one if replicas == 1 else f"All {replicas} replicas are in sync."
        found.append(Explanation(ISR, OK, text))
    return found


def _isr_without_leader(now: Situation) -> Explanation:
    view = now.view
    isr = f"The ISR is {named(view.isr)}" if view.isr else "The ISR is empty"
    away = [f"broker {row.broker}: {row.unreachable}" for row in view.replicas if row.unreachable]
    detail = f"Did not respond: {'; '.join(away)}." if away else ""
    return Explanation(ISR, BAD, f"{isr}: without a leader no replica can join it.", detail)


def _under_min_isr(now: Situation) -> Explanation:
    view = now.view
    text = (
        f"The ISR has {count(len(view.isr), 'replica')}, min.insync.replicas is {view.min_isr}:"
        " produce requests with acks=all are rejected (NOT_ENOUGH_REPLICAS)."
    )
    return Explanation(
        ISR,
        BAD,
        text,
        "With acks=1 or acks=0 the leader still appends records, but they are not committed:"
        " consumers can't read them, and the next leader may not have them.",
    )


def _out(now: Situation, row: ReplicaView, state: State) -> Explanation:
    since = "" if row.out_for_ms is None else f" for {duration(row.out_for_ms)}"
    why = row.why_out or row.unreachable
    if why is None:
        why = (
            "Kafka's protocol does not say why"
            if now.kafka
            else "the leader, which knows why, did not respond"
        )
    parts = []
    if row.log_end_offset is not None and row.lag is not None:
        known = "ends" if row.unreachable is None else "ended, as far as the leader knows,"
        parts.append(f"Its log {known} at {row.log_end_offset}, {count(row.lag, 'record')} behind.")
    fetched = now.ms_ago(state.get("last_fetch_ms"))
    if fetched is not None:
        parts.append(f"Its last fetch was {duration(fetched)} ago.")
    caught_up = now.ms_ago(state.get("last_caught_up_ms"))
    if caught_up is not None:
        parts.append(f"It last had all of the leader's records {duration(caught_up)} ago.")
    if row.unreachable is not None and row.unreachable != why:
        parts.append(f"It did not respond: {row.unreachable}.")
    severity = BAD if now.under_min_isr else WARN
    return Explanation(
        ISR, severity, f"Broker {row.broker} is out of the ISR{since}: {why}.", " ".join(parts)
    )


def _hanging(now: Situation, row: ReplicaView, state: State) -> Explanation | None:
    """Return what suggests that a member of the ISR hangs; None if nothing does."""
    fetched = now.ms_ago(state.get("last_fetch_ms"))
    slow = fetched is not None and fetched > SILENT_MS
    if row.unreachable is None and not slow:
        return None
    text = f"Broker {row.broker} is in the ISR, but"
    text += " has not fetched" if slow else " did not respond"
    text += f" for {duration(fetched)}." if slow and fetched is not None else ""
    text += f": {row.unreachable}." if not slow else ""
    detail = "The leader removes it when it has not caught up for replica.lag.time.max.ms, the"
    detail += " controller when its session ends. Until then the HW waits for it."
    if slow and row.unreachable is not None:
        detail += f" It did not respond: {row.unreachable}."
    return Explanation(ISR, WARN, text, detail)


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]
