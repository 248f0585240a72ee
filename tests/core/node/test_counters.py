"""Counters by topic: kept while the topic exists, summed up when it is deleted."""

from tidelog.core.node.measuring.counters import GONE_TOPICS_MAX, Counters


def test_a_broker_that_is_never_scraped_forgets_deleted_topics() -> None:
    counters = Counters()
    counters.traffic("kept", ["kept"]).messages_in = 7
    for number in range(10 * GONE_TOPICS_MAX):
        counters.traffic(f"churned-{number}", ["kept", f"churned-{number}"]).messages_in = 1
    assert counters.traffic("kept", ["kept"]).messages_in == 7
    assert len(counters.topics) <= 4 + GONE_TOPICS_MAX
    assert counters.all_topics().messages_in == 7 + 10 * GONE_TOPICS_MAX
