"""Guards of the requests that need a right on the cluster: the request as a whole is refused."""

from collections.abc import Callable
from typing import Any

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Guard, Serve, run
from tidelog.core.api.handlers.brokers import NOT_REQUESTED
from tidelog.core.authorization.acl import Operation
from tidelog.core.errors import ErrorCode

_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _error(operation: Operation) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "error_code": _CLUSTER,
        "error_message": f"{operation.name} on the cluster is needed.",
    }


def _needs(operation: Operation, refuse: Callable[[Struct, dict[str, Any]], Struct]) -> Guard:
    """Return the guard of an API: `refuse` builds the response from the request and the error."""

    def guard(access: Access, _broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
        if access.may_on_cluster(operation):
            return (yield from run(serve(request)))
        return refuse(request, _error(operation))

    return guard


def _without_throttle(error: dict[str, Any]) -> dict[str, Any]:
    return {"error_code": error["error_code"], "error_message": error["error_message"]}


def _each(request: Struct, field: str, error: dict[str, Any]) -> list[Struct]:
    return [_without_throttle(error) for _ in request[field]]


# -- ACLs ------------------------------------------------------------------------------------

describe_acls = _needs(Operation.DESCRIBE, lambda _, error: {**error, "resources": []})
create_acls = _needs(
    Operation.ALTER,
    lambda request, error: {"throttle_time_ms": 0, "results": _each(request, "creations", error)},
)
delete_acls = _needs(
    Operation.ALTER,
    lambda request, error: {
        "throttle_time_ms": 0,
        "filter_results": [
            {**each, "matching_acls": []} for each in _each(request, "filters", error)
        ],
    },
)

# -- passwords and quotas --------------------------------------------------------------------


def _scram_results(users: list[str], error: dict[str, Any]) -> list[Struct]:
    return [{"user": user, **_without_throttle(error), "credential_infos": []} for user in users]


describe_user_scram_credentials = _needs(
    Operation.DESCRIBE,
    lambda request, error: {
        **error,
        "results": _scram_results(["" for _ in request["users"] or []], error),
    },
)
alter_user_scram_credentials = _needs(
    Operation.ALTER,
    lambda request, error: {
        "throttle_time_ms": 0,
        "results": _scram_results(
            sorted({each["name"] for each in [*request["deletions"], *request["upsertions"]]}),
            error,
        ),
    },
)
describe_client_quotas = _needs(
    Operation.DESCRIBE_CONFIGS, lambda _, error: {**error, "entries": None}
)
alter_client_quotas = _needs(
    Operation.ALTER_CONFIGS,
    lambda request, error: {
        "throttle_time_ms": 0,
        "entries": [
            {**_without_throttle(error), "entity": entry["entity"]} for entry in request["entries"]
        ],
    },
)

# -- replicas and leaders --------------------------------------------------------------------

describe_log_dirs = _needs(Operation.DESCRIBE, lambda _, error: {**error, "results": []})
alter_replica_log_dirs = _needs(
    Operation.ALTER,
    lambda request, error: {
        "throttle_time_ms": 0,
        "results": [
            {
                "topic_name": topic["name"],
                "partitions": [
                    {"partition_index": index, "error_code": error["error_code"]}
                    for index in topic["partitions"]
                ],
            }
            for folder in request["dirs"]
            for topic in folder["topics"]
        ],
    },
)
elect_leaders = _needs(
    Operation.ALTER,
    lambda request, error: {
        **error,
        "replica_election_results": [
            {
                "topic": topic["topic"],
                "partition_result": [
                    {"partition_id": index, **_without_throttle(error)}
                    for index in topic["partitions"]
                ],
            }
            for topic in request["topic_partitions"] or []
        ],
    },
)
alter_partition_reassignments = _needs(
    Operation.ALTER,
    lambda request, error: {
        **error,
        "allow_replication_factor_change": True,
        "responses": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": partition["partition_index"],
                        **_without_throttle(error),
                    }
                    for partition in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ],
    },
)
list_partition_reassignments = _needs(
    Operation.DESCRIBE,
    lambda request, error: {
        **error,
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": index,
                        "replicas": [],
                        "adding_replicas": [],
                        "removing_replicas": [],
                    }
                    for index in topic["partition_indexes"]
                ],
            }
            for topic in request["topics"] or []
        ],
    },
)

# -- brokers and features --------------------------------------------------------------------

update_features = _needs(Operation.ALTER, lambda _, error: {**error, "results": []})
unregister_broker = _needs(Operation.ALTER, lambda _, error: error)


def describe_cluster(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """Everyone sees the brokers; the operations on the cluster are shown with DESCRIBE on it."""
    response = yield from run(serve(request))
    if response["cluster_authorized_operations"] != NOT_REQUESTED:
        response["cluster_authorized_operations"] = access.cluster_operations()
    return response
