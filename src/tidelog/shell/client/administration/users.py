"""Create, list and delete users with SCRAM credentials."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.core.api_table import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.sasl.scram import new_salt, salted_password
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

CODES = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""Kafka's codes of the mechanisms."""
_NAMES = {code: name for name, code in CODES.items()}


class Credential(NamedTuple):
    """A mechanism by which a user may authenticate."""

    mechanism: str
    iterations: int


class User(NamedTuple):
    """A user and its credentials."""

    user: str
    credentials: tuple[Credential, ...]


def describe_users(cluster: Cluster, names: Iterable[str] = ()) -> list[User]:
    """Return these users, or all. A user who does not exist has no credentials."""
    wanted = [{"name": name} for name in dict.fromkeys(names)]
    answer = cluster.ask_any(
        lambda broker: broker.call(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": wanted or None})
    )
    if answer["error_code"] != ErrorCode.NONE:
        raise BrokerError("describing users", answer["error_code"], answer["error_message"])
    users = []
    for result in answer["results"]:
        if result["error_code"] not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            what = f"describing user {result['user']}"
            raise BrokerError(what, result["error_code"], result["error_message"])
        credentials = tuple(
            Credential(_NAMES.get(each["mechanism"], str(each["mechanism"])), each["iterations"])
            for each in result["credential_infos"]
        )
        users.append(User(result["user"], credentials))
    return sorted(users)


def store_user(
    cluster: Cluster, name: str, mechanism: str, password: str, iterations: int
) -> Outcome:
    """Create a user or replace its password for one mechanism.

    The password itself is not sent.
    """
    salt = new_salt(os.urandom)
    upsertion = {
        "name": name,
        "mechanism": CODES[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted_password(mechanism, password, salt, iterations),
    }
    return _alter(cluster, name, {"deletions": [], "upsertions": [upsertion]})


def delete_user(cluster: Cluster, name: str, mechanisms: Sequence[str]) -> list[Outcome]:
    """Delete the credentials of a user for these mechanisms."""
    # Kafka refuses a request with two changes of one user.
    requests: list[dict[str, object]] = [
        {"deletions": [{"name": name, "mechanism": CODES[each]}], "upsertions": []}
        for each in mechanisms
    ]
    return [_alter(cluster, name, request) for request in requests]


def _alter(cluster: Cluster, name: str, request: dict[str, object]) -> Outcome:
    def ask(controller: KafkaConnection) -> Outcome:
        answer = controller.call(ALTER_USER_SCRAM_CREDENTIALS, request)
        [result] = answer["results"]
        if result["error_code"] == ErrorCode.NOT_CONTROLLER:
            raise BrokerError(f"changing user {name}", ErrorCode.NOT_CONTROLLER)
        return Outcome(name, result["error_code"], result["error_message"])

    return cluster.ask_controller(ask)
