"""DescribeClientQuotas and AlterClientQuotas (KIP-546), with Kafka's rules and texts."""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import Refused, error_text
from tidelog.core.controller.events import AlterQuotasReceived
from tidelog.core.controller.quota_changes import level_problem
from tidelog.core.errors import ErrorCode
from tidelog.core.quotas.entity import (
    CLIENT_ID,
    IP,
    TYPES,
    USER,
    Entity,
    QuotaAlteration,
    QuotaFilter,
    canonical_entity,
    entity_problem,
    value_problem,
)

_EXACT, _DEFAULT, _SPECIFIED = range(3)
"""Kafka's codes: this name, the default, any name or the default."""


def describe_client_quotas(broker: BrokerContext, request: Struct) -> Struct:
    """DescribeClientQuotas 0-1: the quotas of the entities that a filter selects."""
    try:
        wanted = _filter(request["components"], strict=request["strict"])
    except Refused as refused:
        return {
            "throttle_time_ms": 0,
            "error_code": refused.error,
            "error_message": error_text(refused.message),
            "entries": None,
        }
    entries = [
        {
            "entity": _entity_struct(entity),
            "values": [{"key": key, "value": value} for key, value in sorted(quotas.items())],
        }
        for entity, quotas in broker.node.image.quotas.items()
        if wanted.matches(entity)
    ]
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "entries": entries,
    }


def _filter(components: list[Struct], *, strict: bool) -> QuotaFilter:
    """Parse the filter. Raises Refused."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        kind, match, match_type = (
            component[name] for name in ("entity_type", "match", "match_type")
        )
        if not kind:
            raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in specified:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
        if kind not in TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        if (match is None) != (match_type != _EXACT):
            message = f"{kind}: an exact match needs a name, and no other match has one."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
        if match_type == _SPECIFIED:
            specified.add(kind)
        else:
            [(_, exact[kind])] = canonical_entity(((kind, match),))
    kinds = specified.union(exact)
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        message = "An ip can't be combined with a user or client-id in the filter."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    return QuotaFilter(exact, frozenset(specified), strict)


def alter_client_quotas(broker: BrokerContext, request: Struct) -> Handling:
    """AlterClientQuotas 0-1: change the valid entities of the request; each of the others fails on
    its own."""
    refused: dict[Entity, str | None] = {}
    """The entities as the client spells them, by which it finds its results."""
    spelled: dict[Entity, Entity] = {}
    """How the client spells each entity that is stored."""
    alterations: list[QuotaAlteration] = []
    for entry in request["entries"]:
        entity = _entity(entry)
        stored = canonical_entity(entity)
        if stored in spelled:
            duplicate = "Ignoring duplicate entity " + _spelled(entity)
            refused[spelled[stored]] = refused[entity] = duplicate
            continue
        spelled[stored] = entity
        changes = tuple(
            (op["key"], None if op["remove"] else float(op["value"])) for op in entry["ops"]
        )
        problem = entity_problem(entity) or _problem(entity, changes)
        refused[entity] = problem
        if problem is None:
            alterations.append(QuotaAlteration(stored, changes))
    error, message = ErrorCode.NONE, ""
    too_low = level_problem(broker.node.image)
    if too_low is not None:
        error, message = ErrorCode.UNSUPPORTED_VERSION, too_low
    elif alterations:
        validate_only = request["validate_only"]
        [answer] = yield [AlterQuotasReceived(0, tuple(alterations), validate_only)]
        error, message = answer.error, answer.message
    return {
        "throttle_time_ms": 0,
        "entries": [
            {
                "error_code": error if problem is None else ErrorCode.INVALID_REQUEST,
                "error_message": error_text(message if problem is None else problem),
                "entity": _entity_struct(entity),
            }
            for entity, problem in refused.items()
        ],
    }


def _problem(entity: Entity, changes: tuple[tuple[str, float | None], ...]) -> str | None:
    """Return why the changes are refused; None if they may be made."""
    seen: set[str] = set()
    for key, value in changes:
        if key in seen:
            return f"Duplicate quota key {key} not updating quota for this entity"
        seen.add(key)
        problem = None if value is None else value_problem(entity, key, value)
        if problem is not None:
            return problem
    return None


def _entity(entry: Struct) -> Entity:
    parts = [(part["entity_type"], part["entity_name"]) for part in entry["entity"]]
    return tuple(sorted(parts, key=lambda part: (part[0], part[1] or "")))


def _entity_struct(entity: Entity) -> list[Struct]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def _spelled(entity: Entity) -> str:
    return ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
