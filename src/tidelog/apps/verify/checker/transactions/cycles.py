"""Find cycles of dependencies between transactions (Adya's G0 and G1c).

T1 -> T2 by a write if a record of T2 follows one of T1 in a partition, with no other in between;
by a read if T2 read a record of T1 before it committed. A cycle of reads alone is an anomaly: each
of its transactions would have seen the others committed before it committed itself. Kafka does not
isolate writes: records of open transactions are interleaved in a partition. So cycles with a write
are counted, but allowed.
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.transactions.events import Place
from tidelog.apps.verify.checker.transactions.history import TxnHistory
from tidelog.apps.verify.checker.transactions.outcomes import Logs, record

Graph = dict[int, dict[int, str]]
"""By transaction: those that depend on it, and why."""


def check_cycles(history: TxnHistory, logs: Logs) -> Findings:
    """Count the groups of transactions that depend on each other, by kind of cycle."""
    findings = Findings()
    writes, seen = _by_writes(history, logs)
    reads = _by_reads(history, seen)
    both = {txn: {**writes.get(txn, {}), **reads.get(txn, {})} for txn in {*writes, *reads}}
    for kind, graph in (("G0 write cycle", writes), ("G1c read cycle", reads)):
        for component in components(graph):
            findings.add(kind, explain(history, graph, component))
    for component in components(both):
        inside = set(component)
        if any(inside & set(reads.get(txn, ())) for txn in component):
            findings.add("mixed cycle", explain(history, both, component))
    return findings


def _by_writes(history: TxnHistory, logs: Logs) -> tuple[Graph, set[int]]:
    """Return the dependencies by writes, and all transactions with visible records."""
    graph: Graph = {}
    seen = set()
    for place, log in logs.items():
        before: tuple[int, int] | None = None
        for offset in log.visible():
            value = log.value(offset)
            sent = history.sent.get(value)
            if sent is None:
                continue
            seen.add(sent.txn)
            if before is not None and before[0] != sent.txn:
                why = f"its {record(value, place, offset)} follows offset {before[1]}"
                graph.setdefault(before[0], {}).setdefault(sent.txn, why)
            before = (sent.txn, offset)
    return graph, seen


def _by_reads(history: TxnHistory, visible: set[int]) -> Graph:
    """Return the dependencies by reads; transactions that are not visible have none."""
    graph: Graph = {}
    for txn in history.txns.values():
        if txn.txn not in visible:
            continue
        for read in txn.reads:
            place = Place(read.topic, read.partition)
            for offset, value in zip(read.offsets, read.values, strict=True):
                writer = history.writer_of(value)
                if writer is not None and writer is not txn:
                    why = f"it read {record(value, place, offset)}"
                    graph.setdefault(writer.txn, {}).setdefault(txn.txn, why)
    return graph


def components(graph: Graph) -> Iterator[list[int]]:
    """Yield the strongly connected components with more than one transaction (Tarjan)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = stack[stack.index(node) :]
                    del stack[-len(component) :]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component


def explain(history: TxnHistory, graph: Graph, component: list[int]) -> str:
    """Describe a shortest cycle through the first transaction of a component."""
    start, inside = component[0], set(component)
    came_from: dict[int, int] = {}
    queue = deque([start])
    while start not in came_from:
        node = queue.popleft()
        for successor in graph.get(node, ()):
            if successor in inside and successor not in came_from:
                came_from[successor] = node
                queue.append(successor)
    path = [start]
    while (node := came_from[path[-1]]) != start:
        path.append(node)
    path.append(start)
    steps = [
        f"{history.txns[after]} depends on {history.txns[before]} ({graph[before][after]})"
        for after, before in pairwise(path)
    ]
    return f"{'; '.join(steps)}; {len(component)} transactions depend on each other"
