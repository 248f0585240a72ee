"""The API table is complete and consistent: with Kafka, the codec, the handlers, both listeners."""

import re
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
from dispatch_cluster import DispatchCluster, Line
from wire_structs import fields_of

from tidelog.apps.apis_page import KAFKA_APIS
from tidelog.core import api_table
from tidelog.core.api.handlers import HANDLERS, handler_of
from tidelog.core.api_table import (
    APIS,
    CLIENT_APIS,
    INTERNAL_APIS,
    NEVER,
    OFFERED,
    PRIVATE,
    Api,
    access_rules,
    api_name,
    known_versions,
)
from tidelog.core.wire.codec import REQUEST, RESPONSE
from tidelog.core.wire.frames import begin_request

ROWS = sorted(APIS.values())
OPERATIONS = {
    *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS"),
    "DESCRIBE_TOKENS",
}
RESOURCES = {"TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"}
WITHOUT_RIGHTS = {
    *("SaslHandshake", "SaslAuthenticate", "ApiVersions", "Hello"),
    *("RenewDelegationToken", "ExpireDelegationToken"),
}
"""Needed before a client is authenticated, or allowed to a token's owner and renewers only."""


def words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def each(apis: list[Api]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("api", apis, ids=attrgetter("name"))


@each(ROWS)
def test_the_key_has_a_constant_named_after_the_api(api: Api) -> None:
    assert getattr(api_table, words(api.name).upper()) == api.key
    assert APIS[api.key] is api
    assert api_name(api.key) == api.name
    assert known_versions(api.key) == (api.first, api.codec_versions[-1])


def test_keys_and_names_are_unique() -> None:
    assert len(api_table._TABLE) == len(APIS) == len({api.name for api in ROWS})
    assert [api.key for api in api_table._TABLE] == sorted(APIS)


@each(ROWS)
def test_names_and_versions_are_kafkas(api: Api) -> None:
    assert api.first <= api.last <= api.codec_versions[-1]
    assert 0 <= api.flexible <= api.last or api.flexible == NEVER
    assert not api.serves(api.first - 1)
    assert api.serves(api.first)
    assert api.serves(api.last)
    assert not api.serves(api.last + 1)
    if api.key in PRIVATE:
        assert api.flexible == NEVER
        return
    kafkas = KAFKA_APIS[api.key]
    assert api.name == kafkas.name
    assert (api.first, api.last) == (kafkas.first, kafkas.last)


@each(ROWS)
def test_the_codec_has_the_fields_of_every_version(api: Api) -> None:
    for version in api.codec_versions:
        for kind in (REQUEST, RESPONSE):
            assert all(field.name for field in fields_of(api.key, version, kind))


@each([api for api in ROWS if api.handler])
def test_the_handler_exists(api: Api) -> None:
    module, _, name = api.handler.partition(":")
    handler = attrgetter(name)(import_module(f"tidelog.core.api.{module}"))
    assert callable(handler)
    if api.key in HANDLERS:
        assert handler_of(api.key) is handler
        assert name == words(api.name)


@each(ROWS)
def test_an_api_has_a_handler_if_a_listener_serves_it(api: Api) -> None:
    assert bool(api.handler) == bool(api.listeners)
    assert (api.key in OFFERED) == ("client" in api.listeners and api.key not in PRIVATE)
    assert api.advertised_first in ((0,) if api.name == "Produce" else (None,))


@each(ROWS)
def test_acl_operations_have_kafkas_names(api: Api) -> None:
    rules = access_rules(api)
    assert bool(rules) != (api.name in WITHOUT_RIGHTS)
    for rule in rules:
        for operation, resource in rule.any_of:
            assert operation in OPERATIONS
            assert resource in RESOURCES


def test_acl_operations_are_parsed() -> None:
    [topic, create, *_] = access_rules(APIS[api_table.METADATA])
    assert topic == ((("DESCRIBE", "TOPIC"),), "")
    assert create == ((("CREATE", "TOPIC"), ("CREATE", "CLUSTER")), "it creates a topic")


@pytest.fixture(scope="module")
def cluster() -> DispatchCluster:
    cluster = DispatchCluster(brokers=(1,))
    cluster.start_all()
    return cluster


def refusal(dispatch: Any, cluster: DispatchCluster, api: Api, broker: int | None = None) -> str:
    """Why the connection is closed on a request without a body; empty if it is not closed."""
    line = Line()
    line.session.broker = broker
    cluster.send(dispatch, line, bytes(begin_request(api.key, api.first, 5, None)[4:]))
    return line.closed or ""


@each(ROWS)
def test_the_client_listener_serves_its_apis_only(cluster: DispatchCluster, api: Api) -> None:
    reason = refusal(cluster.dispatch(1), cluster, api)
    assert ("is not offered" in reason) == (api.key not in CLIENT_APIS)


@each(ROWS)
def test_the_internal_listener_serves_its_apis_only(cluster: DispatchCluster, api: Api) -> None:
    cluster.set_faults = dict
    reason = refusal(cluster.internal(1), cluster, api, broker=2)
    assert ("is not served on the internal listener" in reason) == (api.key not in INTERNAL_APIS)


def test_no_handler_is_imported_at_startup() -> None:
    """Start-up time is a feature."""
    code = (
        "import sys, tidelog.core.api.dispatch, tidelog.core.api.internal_dispatch;"
        "print([m for m in sys.modules if m.startswith('tidelog.core.api.handlers.')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_byte_limits_match_dispatch() -> None:
    """Dispatch compares with the common limit first, so no other limit may be smaller."""
    limits = {api.bytes_max for api in ROWS}
    assert limits == {api_table.REQUEST_BYTES_MAX, api_table.UNLIMITED}
