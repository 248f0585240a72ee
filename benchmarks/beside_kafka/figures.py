"""What came out: rounds of both sides put together to ratios, and shown as a table."""

import statistics
from typing import Any

from beside_kafka.rows import Row
from beside_kafka.sides import KAFKA, TIDELOG

LATENCY, REQUESTS = "us", "req/s"


def figure(row: Row, one: dict[str, Any]) -> float:
    """What is compared: the rate in the row's unit, or half of all answers came so soon."""
    if row.unit == LATENCY:
        return float(one["p50_us"])
    if row.unit == REQUESTS:
        return float(one["messages"] / one["seconds"])
    return float(one["bytes"] / one["seconds"] / 1e6)


def cpu(row: Row, one: dict[str, Any]) -> float:
    """Brokers' CPU: seconds for a gigabyte, or microseconds for a request."""
    if row.unit == REQUESTS or row.unit == LATENCY:
        return float(one["broker_cpu_s"] / one["messages"] * 1e6)
    return float(one["broker_cpu_s"] / one["cpu_bytes"] * 1e9)


def summary(row: Row, rounds: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The medians of the rounds, their ratio (above 1: we are better), and its spread."""
    result: dict[str, Any] = {"row": row.name, "unit": row.unit}
    result |= {"goal": row.goal, "goal_cpu": row.goal_cpu}
    for name, each in rounds.items():
        found = {"figure": statistics.median(figure(row, one) for one in each)}
        found["cpu"] = statistics.median(cpu(row, one) for one in each)
        found["rss_mb"] = max(one["rss_mb"] for one in each)
        for part in ("p99_us", "p999_us", "ack_p50_us", "ack_p99_us"):
            if part in each[0]:
                found[part] = statistics.median(one[part] for one in each)
        result[name] = {**found, "rounds": each}
    pairs = list(zip(rounds[TIDELOG], rounds[KAFKA], strict=True))
    ratios = sorted(better(row, figure(row, our), figure(row, their)) for our, their in pairs)
    result["ratio"] = statistics.median(ratios)
    result["spread"] = [ratios[0], ratios[-1]]
    result["ratio_cpu"] = result[KAFKA]["cpu"] / max(result[TIDELOG]["cpu"], 1e-9)
    result["foreign_load"] = statistics.mean(o["foreign_load"] for e in rounds.values() for o in e)
    return result


def better(row: Row, ours: float, theirs: float) -> float:
    return theirs / ours if row.unit == LATENCY else ours / theirs


def heading() -> str:
    sides = " ".join(f"{name:>16} {'CPU':>10} {'RSS':>8}" for name in (TIDELOG, KAFKA))
    end = f"{'ratio':>6} {'spread':>12} {'goal':>5} {'by CPU':>7} {'goal':>5} {'others':>6}"
    return f"{'row':36} {sides} {end}"


def line(result: dict[str, Any]) -> str:
    unit = result["unit"]
    per = "us" if unit in (LATENCY, REQUESTS) else "s/GB"

    def said(name: str) -> str:
        one = result[name]
        shown = f"{one['figure']:.0f} {unit}"
        if unit == LATENCY:
            shown = f"{one['figure']:.0f}/{one['p99_us']:.0f} us"
        return f"{shown:>16} {one['cpu']:>5.2f} {per:<4} {one['rss_mb']:>5.0f} MB"

    low, high = result["spread"]
    goals = [f"{result[key]:.2g}" if result[key] else "-" for key in ("goal", "goal_cpu")]
    return (
        f"{result['row']:36} {said(TIDELOG)} {said(KAFKA)} {result['ratio']:>6.2f}"
        f" {f'{low:.2f}-{high:.2f}':>12} {goals[0]:>5} {result['ratio_cpu']:>7.2f} {goals[1]:>5}"
        f" {result['foreign_load']:>6.2f}"
    )
