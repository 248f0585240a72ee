"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554).

The client sends a salted password. The broker that receives it keeps only the two keys that SCRAM
needs; neither the password nor the salted password is stored or sent to the controller.
"""

from collections import Counter
from typing import NamedTuple

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.controller.events import AlterScramReceived
from tidelog.core.controller.metadata.keys import USER_BYTES_MAX
from tidelog.core.errors import ErrorCode
from tidelog.core.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_of

MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The mechanisms by Kafka's codes."""


class Problem(NamedTuple):
    """Why a user is refused, in Kafka's words."""

    error: ErrorCode
    message: str


_TWICE = Problem(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)
_MISSING = Problem(
    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
)


def describe_user_scram_credentials(broker: BrokerContext, request: Struct) -> Struct:
    """DescribeUserScramCredentials 0: the mechanisms and iterations of users, never their keys."""
    stored = broker.node.image.scram
    times = Counter(user["name"] for user in request["users"] or [])
    if not times:
        times = Counter({user for _, user in stored})
    results = []
    for name in sorted(times):
        found = [
            {"mechanism": code, "iterations": stored[mechanism, name].iterations}
            for code, mechanism in MECHANISMS.items()
            if (mechanism, name) in stored
        ]
        problem = None
        if times[name] > 1:
            problem = Problem(
                ErrorCode.DUPLICATE_RESOURCE,
                "Cannot describe SCRAM credentials for the same user twice in a single request:"
                f" {name}",
            )
        elif not found:
            problem = Problem(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
        result = {**_result(name, problem), "credential_infos": [] if problem else found}
        if problem is None:
            result["error_message"] = ""  # as in Kafka
        results.append(result)
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": results,
    }


def alter_user_scram_credentials(broker: BrokerContext, request: Struct) -> Handling:
    """AlterUserScramCredentials 0: each user by itself, all that are valid."""
    stored = broker.node.image.scram
    changes: dict[str, AlterScramReceived] = {}
    problems: dict[str, Problem] = {}
    for alteration in (*request["deletions"], *request["upsertions"]):
        name = alteration["name"]
        if name in problems:
            continue
        earlier = changes.pop(name, None)
        if earlier is None:
            problem = _problem(alteration)
        elif earlier.credential is None and (earlier.mechanism, name) not in stored:
            problem = _MISSING
        else:
            problem = _TWICE
        if problem is None:
            changes[name] = _change(alteration)
        else:
            problems[name] = problem
    answers = yield list(changes.values())
    results = []
    for name, answer in zip(changes, answers, strict=True):
        refused = Problem(answer.error, answer.message) if answer.error else None
        results.append(_result(name, refused))
    results += [_result(name, problem) for name, problem in problems.items()]
    return {"throttle_time_ms": 0, "results": results}


def _change(alteration: Struct) -> AlterScramReceived:
    mechanism = MECHANISMS[alteration["mechanism"]]
    if "salt" not in alteration:
        return AlterScramReceived(0, alteration["name"], mechanism, None)
    salted, salt = bytes(alteration["salted_password"]), bytes(alteration["salt"])
    credential = credential_of(mechanism, salted, salt, alteration["iterations"])
    return AlterScramReceived(0, alteration["name"], mechanism, credential)


def _problem(alteration: Struct) -> Problem | None:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if not alteration["name"]:
        return Problem(unacceptable, "Username must not be empty")
    if len(alteration["name"].encode()) > USER_BYTES_MAX:
        return Problem(unacceptable, f"Username must not exceed {USER_BYTES_MAX} bytes")
    if alteration["mechanism"] not in MECHANISMS:
        return Problem(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if "salt" not in alteration:
        return None
    if alteration["iterations"] < ITERATIONS_MIN:
        return Problem(unacceptable, "Too few iterations")
    if alteration["iterations"] > ITERATIONS_MAX:
        return Problem(unacceptable, "Too many iterations")
    if not alteration["salt"] or not alteration["salted_password"]:
        return Problem(unacceptable, "Salt and salted password must not be empty")
    return None


def _result(name: str, problem: Problem | None) -> Struct:
    error, message = problem or (ErrorCode.NONE, None)
    return {"user": name, "error_code": error, "error_message": error_text(message)}
