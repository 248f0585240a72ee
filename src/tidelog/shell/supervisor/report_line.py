"""Format a broker's report as a line of its log: text, or a JSON object.

Invariant: one report is one line of printable characters, whatever it contains. Clients choose
names in it, and must not forge lines, or control the terminal of a reader.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

Report = Mapping[str, Any]
"""`event` is the kind; the other fields depend on it."""


def line_writer(form: str) -> Callable[[Report], str]:
    """The formatter for a value of `tidelog.log.format`."""
    return json_line if form == "json" else log_line


def json_line(report: Report) -> str:
    """Format a report as a JSON object, in the format of `core/history.py`."""
    import json

    from tidelog.core.history import HistoryEvent

    level, text = describe(report)
    fields = dict(report)
    event, broker = fields.pop("event"), fields.pop("broker", None)
    if event == "log":
        event, fields = fields.get("name", "note"), fields.get("fields", {})
    name = str(event).replace(" ", "_")
    now_ms = time.time_ns() // 1_000_000
    found = HistoryEvent(now_ms, broker, name, fields, level, text)
    return json.dumps(found.as_data(), default=str)


def log_line(report: Report) -> str:
    """A line of text, without the line end."""
    level, text = describe(report)
    now = time.time()
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"{clock}.{int(now % 1 * 1000):03d} {level:<5} {_printable(text)}"


def _printable(text: str) -> str:
    """Escape characters that are not printable, as Python does."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def describe(report: Report) -> tuple[str, str]:
    """The level and the text of a report."""
    event = report["event"]
    who = f"broker {report['broker']}" if "broker" in report else "brokers"
    if event == "log":
        return str(report["level"]), " ".join(str(report["text"]).split("\n"))
    if event == "recovering":
        stop = "after a clean stop" if report.get("clean") else "after an unclean stop"
        place = f"{report['partition']} ({report['number']} of {report['of']})"
        return "INFO", f"{who}: recovering {place} {stop}"
    if event == "listening":
        where = f"{report['host']}:{report['port']}"
        text = f"{who}: listening on {where}, for brokers on port {report['internal_port']}"
        metrics = report.get("metrics")
        return "INFO", f"{text}, metrics at {url_of_metrics(metrics)}" if metrics else text
    if event == "acting":
        return "INFO", f"{who}: part of the cluster"
    if event == "detached":
        return "WARN", f"{who}: serves without the metadata store, only acks=all"
    if event == "not acting":
        return (
            "WARN",
            f"{who}: not part of the cluster; leads no partition until it is again",
        )
    if event == "stopped":
        reason = f": {report['reason']}" if report.get("reason") else ""
        if report.get("clean"):
            return "INFO", f"{who}: stopped cleanly{reason}"
        return "ERROR", f"{who}: stopped{reason}"
    if event == "failed":
        return "ERROR", f"{who}: can't start: {report.get('reason')}"
    if event == "crashed":
        return (
            "ERROR",
            f"{who}: crashed, a bug in Tidelog (see above): {report.get('reason')}",
        )
    return "INFO", f"{who}: {event}"


def url_of_metrics(address: str) -> str:
    """Return the URL for Prometheus of the address in a report."""
    return f"{address if '://' in address else f'http://{address}'}/metrics"
