"""The messages between replicas and the controller, as ordered tuples of ints.

The fields are the kind, the sender, the receiver, and the content; -1 is the controller, or
"none". A message in flight may arrive in any order, or be lost.

A follower awaits the reply to one request at a time, as in the node. When it sends another
request, it discards a reply to the older one, but the older request may still arrive. The
last field of a request says whether its sender still awaits the reply.
"""

from typing import Any, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.types import EpochEnd
from tidelog.lab.modelcheck.shipped.local_step import NOW_MS, ModelBatch

Message: TypeAlias = tuple[Any, ...]

FETCH, FETCH_REPLY, ASK_EPOCH, EPOCH_REPLY, ASK_OFFSETS, OFFSETS_REPLY = range(6)
PROPOSE, ANSWER, REPORT = range(6, 9)
QUESTIONS = (FETCH, ASK_EPOCH, ASK_OFFSETS)
REPLIES = (FETCH_REPLY, EPOCH_REPLY, OFFSETS_REPLY)
ABANDONED, AWAITED = range(2)
CONTROLLER = -1
NAMES = (
    "Fetch",
    "FetchReply",
    "OffsetForLeaderEpoch",
    "EpochEnd",
    "ListOffsets",
    "Offsets",
    "AlterPartition",
    "AlterPartitionReply",
    "Report",
)


def question_message(sender: int, leader: int, question: do.Question) -> Message:
    """Return the message for a follower's request to its leader."""
    match question:
        case do.FetchPosition():
            epoch = question.last_fetched_epoch
            return (
                FETCH,
                sender,
                leader,
                question.leader_epoch,
                question.offset,
                -1 if epoch is None else epoch,
                AWAITED,
            )
        case do.EpochQuestion():
            return (ASK_EPOCH, sender, leader, question.leader_epoch, question.epoch, AWAITED)
        case do.OffsetsQuestion():
            return (ASK_OFFSETS, sender, leader, question.leader_epoch, AWAITED)


def after_new_request(messages: tuple[Message, ...], follower: int) -> list[Message]:
    """Return the messages in flight after this follower sends a new request."""
    left = []
    for message in messages:
        if message[0] in QUESTIONS and message[1] == follower:
            left.append((*message[:-1], ABANDONED))
        elif message[0] not in REPLIES or message[2] != follower:
            left.append(message)
    return left


def request_event(message: Message) -> on.Event:
    """Return the leader's event for a follower's request."""
    match message:
        case (kind, sender, _, leader_epoch, offset, last, _) if kind == FETCH:
            return on.FollowerFetchReceived(
                message, sender, offset, leader_epoch, last if last >= 0 else None, 0, None, NOW_MS
            )
        case (kind, _, _, leader_epoch, epoch, _) if kind == ASK_EPOCH:
            return on.EpochEndRequested(message, leader_epoch, epoch)
        case _:
            return on.OffsetsRequested(message, message[3], False, False)


def reply_message(
    request: Message,
    answer: do.AnswerFetch | do.AnswerEpochEnd | do.AnswerOffsets,
    log: tuple[tuple[int, int], ...],
) -> Message | None:
    """Return the message for the reply, or None if the sender no longer awaits it."""
    _, sender, receiver, leader_epoch = request[:4]
    if request[-1] == ABANDONED:
        return None
    match answer:
        case do.AnswerFetch():
            diverging = answer.diverging or (-1, -1)
            # One record per fetch: the shortest reply leads to every interleaving.
            records = log[answer.offset : min(answer.upto, answer.offset + 1)]
            return (
                FETCH_REPLY,
                receiver,
                sender,
                leader_epoch,
                request[4],
                int(answer.error),
                records,
                answer.high_watermark,
                tuple(diverging),
            )
        case do.AnswerEpochEnd():
            end = tuple(answer.end or (-1, -1))
            return (EPOCH_REPLY, receiver, sender, leader_epoch, request[4], int(answer.error), end)
        case do.AnswerOffsets():
            return (
                OFFSETS_REPLY,
                receiver,
                sender,
                leader_epoch,
                int(answer.error),
                answer.log_start_offset,
                answer.end_offset,
            )


def reply_event(message: Message) -> on.Event:
    """Return the event of a reply, for the replica that sent the request or proposal."""
    kind = message[0]
    if kind == FETCH_REPLY:
        _, _, _, leader_epoch, offset, error, records, high_watermark, diverging = message
        batches = [ModelBatch(offset + i, offset + i, e, r) for i, (e, r) in enumerate(records)]
        return on.FetchAnswered(
            leader_epoch,
            offset,
            ErrorCode(error),
            batches,
            high_watermark,
            0,
            EpochEnd(*diverging) if diverging != (-1, -1) else None,
            NOW_MS,
        )
    if kind == EPOCH_REPLY:
        _, _, _, leader_epoch, epoch, error, end = message
        epoch_end = EpochEnd(*end) if end != (-1, -1) else None
        return on.EpochEndAnswered(leader_epoch, epoch, ErrorCode(error), epoch_end, NOW_MS)
    if kind == OFFSETS_REPLY:
        _, _, _, leader_epoch, error, start, end = message
        return on.OffsetsAnswered(leader_epoch, ErrorCode(error), start, end, NOW_MS)
    _, _, _, isr, at, error, leader_epoch, partition_epoch, new_isr = message
    return on.IsrChangeAnswered(
        frozenset(isr), at, ErrorCode(error), leader_epoch, partition_epoch, new_isr, NOW_MS
    )


def renamed(message: Message, names: tuple[int, ...]) -> Message:
    """Return the message with the replicas renamed; names[-1] is the controller's name."""
    kind, sender, receiver = message[:3]
    rest = message[3:]
    if kind == PROPOSE:
        rest = (_renamed_set(rest[0], names), *rest[1:])
    elif kind == ANSWER:
        rest = (_renamed_set(rest[0], names), *rest[1:5], _renamed_set(rest[5], names))
    return (kind, names[sender], names[receiver], *rest)


def _renamed_set(brokers: tuple[int, ...], names: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(names[broker] for broker in brokers))
