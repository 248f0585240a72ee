"""The entries of this broker's loss ledger, page by page.

A request has `topic` and `since_ms` as filters, and `next` of the response before. A page may be
empty although more pages follow.
"""

import json
from typing import Any

from tidelog.core.history import HistoryEvent
from tidelog.core.node.node import Node
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.loss_ledger import Cursor, read_page


def describe_losses(node: Node, asked: dict[str, Any]) -> dict[str, Any]:
    """Return one page of the ledger, of at most 64 KB. Raises ValueError, TypeError, AttributeError
    for an invalid request."""
    directory, file, position = map(int, asked.get("next") or (0, 0, 0))
    topic, since_ms = asked.get("topic"), int(asked.get("since_ms") or 0)
    answer: dict[str, Any] = {"broker_id": node.config.broker_id, "losses": [], "next": None}
    disks = node.directory.ledger_disks
    if not 0 <= directory < len(disks):
        return answer
    try:
        page = read_page(disks[directory], Cursor(file, position))
    except DiskError as error:
        return {**answer, "error": f"the loss ledger can't be read: {error}"}
    if page.next is not None:
        answer["next"] = [directory, *page.next]
    elif directory + 1 < len(disks):
        answer["next"] = [directory + 1, 0, 0]
    for line in page.lines:
        try:
            data = json.loads(line)
            at_ms = HistoryEvent.from_data(data).at_ms
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # a crash cut it off
        if topic in (None, data.get("topic")) and at_ms >= since_ms:
            answer["losses"].append(data)
    return answer
