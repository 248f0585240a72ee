"""Combine the rounds of both sides into ratios, and format them as a table."""

import statistics
from typing import Any

from beside_kafka.rows import Row
from beside_kafka.sides import KAFKA, TIDELOG

LATENCY, REQUESTS, TRANSACTIONS = "us", "req/s", "txn/s"
RATES = (REQUESTS, TRANSACTIONS)
LESS_IS_BETTER = {LATENCY, "s", "MB", "cores"}
CPU_PER = {LATENCY: "us", REQUESTS: "us", TRANSACTIONS: "us", "MB/s": "s/GB", "s": "s"}
"""The unit of the brokers' CPU: for each request or transaction, for each gigabyte, or in total."""
KEPT = ("p50_us", "p99_us", "p999_us", "ack_p50_us", "ack_p99_us", "ack_p999_us")
MET, MISSED = "✓", "✗"
WIDTH_MAX = 160


def figure(row: Row, one: dict[str, Any]) -> float:
    """Return the figure to compare: the one that the row names, or a rate in the row's unit."""
    if row.take:
        return float(one[row.take])
    if row.unit in RATES:
        return float(one["messages"] / one["seconds"])
    return float(one["bytes"] / one["seconds"] / 1e6)


def cpu(row: Row, one: dict[str, Any]) -> float:
    """Return the brokers' CPU: seconds per gigabyte or in total, or microseconds per request."""
    if row.unit in (*RATES, LATENCY):
        return float(one["broker_cpu_s"] / one["messages"] * 1e6)
    if row.unit == "MB/s":
        return float(one["broker_cpu_s"] / one["cpu_bytes"] * 1e9)
    return float(one["broker_cpu_s"])


def better(row: Row, ours: float, theirs: float) -> float:
    """Return how many times better Tidelog is.

    A value below the clock's resolution counts as one tick.
    """
    if row.unit in LESS_IS_BETTER:
        return theirs / max(ours, 1e-3 if row.unit == "cores" else 1e-9)
    return ours / theirs


def summary(row: Row, rounds: dict[str, list[dict[str, Any]]], note: str = "") -> dict[str, Any]:
    """Return the medians of the rounds, their ratio (above 1: Tidelog is better) and its spread."""
    result: dict[str, Any] = {"row": row.name, "unit": row.unit, "note": note}
    result |= {"goal": row.goal, "goal_cpu": row.goal_cpu}
    for name, each in rounds.items():
        found: dict[str, Any] = {"figure": statistics.median(figure(row, one) for one in each)}
        if row.goal_cpu:
            found["cpu"] = statistics.median(cpu(row, one) for one in each)
        found["rss_mb"] = max(one["rss_mb"] for one in each)
        for part in KEPT:
            if part in each[0]:
                found[part] = statistics.median(one[part] for one in each)
        result[name] = {**found, "rounds": each}
    pairs = list(zip(rounds[TIDELOG], rounds[KAFKA], strict=True))
    ratios = sorted(better(row, figure(row, our), figure(row, their)) for our, their in pairs)
    result["ratio"] = statistics.median(ratios)
    result["spread"] = [ratios[0], ratios[-1]]
    if row.goal_cpu:
        result["ratio_cpu"] = result[KAFKA]["cpu"] / max(result[TIDELOG]["cpu"], 1e-9)
    result["foreign_load"] = statistics.mean(o["foreign_load"] for e in rounds.values() for o in e)
    return result


def goals(result: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return each goal of a row as (measure, goal, reached ratio)."""
    asked = [("time", result["goal"], result["ratio"])]
    if result["goal_cpu"]:
        asked.append(("CPU", result["goal_cpu"], result["ratio_cpu"]))
    return [each for each in asked if each[1]]


def goals_met(results: list[dict[str, Any]]) -> str:
    """Return a sentence that says how many goals are met, and which are missed."""
    all_of_them = [(r["row"], *goal) for r in results if "error" not in r for goal in goals(r)]
    missed = [
        f"{row} by {by} ({ratio_of(got)}, goal {goal_of(goal)})"
        for row, by, goal, got in all_of_them
        if got < goal
    ]
    summary_line = f"{len(all_of_them) - len(missed)} of {len(all_of_them)} goals are met"
    return f"{summary_line}; missed: {', '.join(missed)}" if missed else summary_line


def heading() -> str:
    sides = " ".join(f"{name:>18} {'CPU':>10} {'RSS':>7}" for name in (TIDELOG, KAFKA))
    end = f"{'ratio':>6} {'spread':>11} {'goal':>6} {'by CPU':>6} {'goal':>5} {'others':>6}"
    return f"{'row':34} {sides} {end}"


def line(result: dict[str, Any]) -> str:
    """Return one row of the table, followed by its note on a line of its own."""
    if "error" in result:
        return f"{result['row']:34} failed: {result['error']}"[:WIDTH_MAX]

    def side(name: str) -> str:
        one = result[name]
        memory = f"{one['rss_mb']:.0f} MB"
        return f"{shown(result, one):>18} {shown_cpu(result, one):>10} {memory:>7}"

    low, high = map(ratio_of, result["spread"])
    by_cpu = ratio_of(result["ratio_cpu"]) if result["goal_cpu"] else "-"
    text = (
        f"{result['row']:34} {side(TIDELOG)} {side(KAFKA)} {ratio_of(result['ratio']):>6}"
        f" {f'{low}-{high}':>11} {mark(result['goal'], result['ratio']):>6}"
        f" {by_cpu:>6} {mark(result['goal_cpu'], result.get('ratio_cpu', 0)):>5}"
        f" {result['foreign_load']:>6.2f}"
    )
    return f"{text}\n    {result['note']}" if result["note"] else text


def shown(result: dict[str, Any], one: dict[str, Any]) -> str:
    """Format a side's figure; for a latency whose figure is the p50, show all percentiles."""
    unit, value = result["unit"], one["figure"]
    if unit == LATENCY and value == one["p50_us"]:
        parts = (value, one["p99_us"], one["p999_us"])
        if parts[2] < LONG_US:
            return f"{'/'.join(f'{part:.0f}' for part in parts)} us"
        return f"{'/'.join(milliseconds(part) for part in parts)} ms"
    return f"{value:.{DIGITS.get(unit, 0)}f} {unit}"


def milliseconds(us: float) -> str:
    """Format with three significant digits, or with all digits before the decimal point."""
    return f"{us / 1e3:.3g}" if us < 999_500 else f"{us / 1e3:.0f}"


DIGITS = {"s": 2, "cores": 3}
LONG_US = 10_000


def shown_cpu(result: dict[str, Any], one: dict[str, Any]) -> str:
    if "cpu" not in one:
        return "-"
    return f"{one['cpu']:.{2 if one['cpu'] < 100 else 0}f} {CPU_PER[result['unit']]}"


def ratio_of(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def mark(goal: float, reached: float) -> str:
    """Format the goal and whether it is met; a dash if no goal is set."""
    return f"{goal_of(goal)}{MET if reached >= goal else MISSED}" if goal else "-"


def goal_of(goal: float) -> str:
    return f"{goal:.2f}".rstrip("0").rstrip(".")
