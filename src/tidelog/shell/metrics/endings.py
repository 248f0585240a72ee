"""Why connections ended that the broker ended: a few words to count by, from what was said.

A peer that closes, breaks off or outlives the broker is no news.
"""

_BY_BEGINNING = (
    ("malformed request", "malformed"),
    ("a request of", "too large"),
    ("a frame of", "too large"),
    ("API ", "not offered"),
    ("silent for too long", "idle"),
    ("a request that did not come", "slow request"),
    ("only brokers are replicas", "no broker"),
    ("failed handshake", "no broker"),
    ("a produce without acks", "failed produce"),
)
_NO_NEWS = ("the peer", "the broker stops", "it was cut off", "[Errno")
ANSWERS_NOT_TAKEN = "answers not taken"


def reason_of(said: str) -> str | None:
    """The kind of ending; None where the broker did not end it."""
    if said.startswith(_NO_NEWS) or not said:
        return None
    if said.endswith("were not taken"):
        return ANSWERS_NOT_TAKEN
    for beginning, reason in _BY_BEGINNING:
        if said.startswith(beginning):
            return reason
    return "refused"
