"""The principal of a connection, as handlers see it."""

from typing import Any

import pytest
from dispatch_cluster import DispatchCluster, Line

from tidelog.core.api_table import CREATE_DELEGATION_TOKEN
from tidelog.core.principal import ANONYMOUS, USER, Principal
from tidelog.core.wire.codec import decode_response, encode_request

TOKEN: dict[str, Any] = {
    "owner_principal_type": None,
    "owner_principal_name": None,
    "renewers": [],
    "max_lifetime_ms": -1,
}


@pytest.mark.parametrize("principal", [ANONYMOUS, Principal(USER, "alice")], ids=str)
def test_a_handler_sees_the_principal_of_the_connection(principal: Principal) -> None:
    cluster = DispatchCluster(brokers=(1,))
    cluster.start_all()
    line = Line()
    if principal is not ANONYMOUS:
        line.session.principal = principal
    frame = encode_request(CREATE_DELEGATION_TOKEN, 3, 7, "client", TOKEN)
    cluster.send(cluster.dispatch(1), line, frame[4:])
    [answer] = line.answers
    assert answer.frame is not None
    _, response = decode_response(CREATE_DELEGATION_TOKEN, 3, answer.frame[4:])
    requester = (
        response["token_requester_principal_type"],
        response["token_requester_principal_name"],
    )
    assert requester == principal
