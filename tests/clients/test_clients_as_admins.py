"""Every client administers: cluster, topics, settings, records, groups."""

import pytest
from client_programs import ALL_CLIENTS, result

from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_admin_requests_succeed(cluster: LocalCluster, name: str, client: str) -> None:
    told = result(
        client, "admin", bootstrap=cluster.bootstrap, topic=name, group=f"group-of-{name}"
    )
    assert told["controller"] in cluster.ids
    assert "exists" in told["exists"].lower(), told["exists"]
    assert told["altered"] in (6, None)
    assert told["listed_after"] in (False, None)
    assert told["state"].lower() == "empty"
    rest = ("brokers", "partitions", "replicas", "retention", "low", "listed", "committed", "gone")
    assert {key: told[key] for key in rest} == {
        "brokers": cluster.ids,
        "partitions": 3,
        "replicas": 3,
        "retention": "7200000",
        "low": 5,
        "listed": True,
        "committed": 7,
        "gone": True,
    }
