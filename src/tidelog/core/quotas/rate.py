"""A rate over a sliding window, and how long a client must wait until the rate is within its quota.

The same figures as Kafka's `Rate` of a `WindowedSum`. A sample holds what was recorded in one
second (`quota.window.size.seconds`). The rate is the sum of the samples over the time since the
oldest one began. Less than all samples but one counts as that much: a client that begins may use
ten seconds of its quota at once.
"""

from math import floor

THROTTLE_MS_MAX = 2**31 - 1
"""The largest throttle time that a response can carry."""


class _Sample:
    """What was recorded in one window."""

    __slots__ = ("began_ms", "last_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.total = 0.0


class WindowedRate:
    """The rate of one client, a second."""

    __slots__ = ("_count", "_current", "_samples", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._count = samples
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add to the current sample; a negative value takes back what was recorded."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.began_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.total += value
        sample.last_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        # One sample more than configured: the oldest one overlaps the beginning of the window.
        self._current = (self._current + 1) % (self._count + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def per_second(self, now_ms: int) -> float:
        """The rate at this time."""
        window_ms = self._span_ms(now_ms)
        return sum(sample.total for sample in self._samples) * 1000 / window_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long to record nothing until the rate is the quota; 0 if it is not exceeded."""
        excess = self.per_second(now_ms) - quota
        if excess <= 0:
            return 0
        return _rounded_ms(excess / quota * self._span_ms(now_ms))

    def _span_ms(self, now_ms: int) -> int:
        """The time that the samples cover, after those that are too old are emptied."""
        oldest_ms = now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._count * self._window_ms:
                sample.reset(now_ms)
            oldest_ms = min(oldest_ms, sample.began_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = self._count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)


class TokenBucket:
    """The changes of partitions that one client may still request (KIP-599).

    It begins full and holds as many tokens as are earned in all samples. A request may take more
    than there are; then the client waits until the debt is paid.
    """

    __slots__ = ("_at_ms", "_burst_s", "_tokens")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._burst_s = samples * window_ms / 1000
        self._tokens: float | None = None
        self._at_ms = 0

    def record(self, value: float, quota: float, now_ms: int) -> None:
        """Take tokens."""
        tokens = self.tokens(quota, now_ms)
        self._tokens = min(tokens - value, self._burst_s * quota)

    def tokens(self, quota: float, now_ms: int) -> float:
        """The tokens left; below 0 while the quota is exceeded."""
        burst = self._burst_s * quota
        if self._tokens is None:
            self._tokens = burst
        else:
            earned = max(now_ms - self._at_ms, 0) * quota / 1000
            self._tokens = min(self._tokens + earned, burst)
        self._at_ms = max(self._at_ms, now_ms)  # a scrape may look at an earlier time
        return self._tokens

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long until the debt is paid; 0 without debt."""
        tokens = self.tokens(quota, now_ms)
        return 0 if tokens >= 0 else _rounded_ms(-tokens / quota * 1000)


def _rounded_ms(wait_ms: float) -> int:
    """Round a throttle time, which is infinite for a quota close to 0."""
    return floor(min(wait_ms, THROTTLE_MS_MAX) + 0.5)
