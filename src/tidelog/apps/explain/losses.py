"""What replicas truncated or found damaged, and the last unclean election."""

from tidelog.apps.explain.situation import (
    BAD,
    INFO,
    WARN,
    Explanation,
    Situation,
    count,
    duration,
    named,
    offsets,
)

LOSS, DAMAGE = "loss", "damage"


def explain_losses(now: Situation) -> list[Explanation]:
    """Say which records replicas dropped since their brokers started."""
    found = []
    if election := now.view.unclean_election:
        by = "the controller, by comparing logs" if election["recovered"] else "an administrator"
        old = [*election["old_isr"], *election["old_elr"]]
        found.append(
            Explanation(
                LOSS,
                WARN,
                f"Broker {election['leader']} was elected uncleanly in epoch"
                f" {election['leader_epoch']}, by {by}.",
                "Before, "
                + (f"{named(old)} could be elected." if old else "no replica could be elected.")
                + " Committed records that the new leader did not have are lost.",
            )
        )
    for loss in sorted(now.view.losses, key=lambda each: -int(each["committed"])):
        broker, committed = loss["broker"], loss["committed"]
        age = now.ms_ago(loss.get("now_ms"), broker)
        when = "" if age is None else f" {duration(age)} ago"
        where = offsets(loss["start"], loss["end"])
        what = count(committed or loss["end"] - loss["start"], "record")
        epoch = f"when it followed leader epoch {loss['leader_epoch']}"
        if committed:
            found.append(
                Explanation(
                    LOSS,
                    BAD,
                    f"Broker {broker} dropped {where}{when}, {epoch}: {what} of them committed.",
                    "Only an unclean election or a lost disk can cause that. Its HW was"
                    f" {loss['high_watermark']}.",
                )
            )
        else:
            found.append(
                Explanation(
                    LOSS,
                    INFO,
                    f"Broker {broker} truncated {what}{when} ({where}), {epoch}.",
                    "It did not know them to be committed; that is normal after a change of the"
                    " leader.",
                )
            )
    return found


def explain_damage(now: Situation) -> list[Explanation]:
    """Say which logs are damaged, and how they are repaired."""
    found = []
    for row in now.view.damaged:
        damage = row.damage or {}
        if row.in_isr and len(now.view.isr) == 1:
            then = "No other replica is in sync, so it serves the remaining records."
        elif now.view.leader is None:
            then = "It is repaired when another replica leads."
        else:
            then = "It copies the damaged records from the leader."
        found.append(
            Explanation(
                DAMAGE,
                BAD,
                f"The log of broker {row.broker} is damaged from offset {damage['offset']} on:"
                f" {damage['reason']}.",
                then,
            )
        )
    found += [
        Explanation(
            DAMAGE,
            BAD if now.view.leader is None else WARN,
            f"Broker {broker} started without its log of this partition.",
            "It can't lead before it has caught up with a leader.",
        )
        for broker in now.view.lost or ()
    ]
    return found
