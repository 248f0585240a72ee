"""`tidelog acl`: who may do what, in a cluster with an authoriser."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import cluster_options, connected_cluster
from tidelog.apps.cli.usage import F, Section, examples, usage_error, yes_option

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.core.authorization.acl import Acl, AclFilter

OPERATIONS = (
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)
_COLUMNS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")


class _Resources(NamedTuple):
    """The resources that the options of one command name."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    cluster: bool

    def pairs(self) -> list[tuple[str, str]]:
        """Return type and name of each resource."""
        named = {
            "TOPIC": self.topics,
            "GROUP": self.groups,
            "TRANSACTIONAL_ID": self.transactional_ids,
            "CLUSTER": ("kafka-cluster",) if self.cluster else (),
        }
        return [(kind, name) for kind, names in named.items() for name in names]


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog acl add User:alice --operation READ --topic orders --group billing",
        "tidelog acl list --principal User:alice",
        "tidelog acl remove --principal User:alice --yes",
    ),
)
def acl() -> None:
    """Show and change ACLs: which principals may do what."""


def _resource_options(which: str) -> Callable[[F], F]:
    def add(command: F) -> F:
        options = (
            click.option(
                "--topic", "topics", multiple=True, metavar="NAME", help=f"Topic {which}."
            ),
            click.option(
                "--group", "groups", multiple=True, metavar="NAME", help=f"Consumer group {which}."
            ),
            click.option(
                "--transactional-id",
                "transactional_ids",
                multiple=True,
                metavar="NAME",
                help=f"Transactional id {which}.",
            ),
            click.option("--cluster", is_flag=True, help="The cluster itself."),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _operation_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--operation",
        "operations",
        multiple=True,
        type=click.Choice(OPERATIONS, case_sensitive=False),
        help=text,
    )


@acl.command(
    "add",
    epilog=examples(
        "tidelog acl add User:alice --operation READ --topic orders --group billing",
        "tidelog acl add User:etl --operation ALL --topic etl- --prefix",
        "tidelog acl add User:* --operation WRITE --topic audit --deny",
    ),
)
@click.argument("principals", nargs=-1, required=True, metavar="PRINCIPAL...")
@_operation_option("Operation; repeatable.  [default: ALL]")
@_resource_options("that the ACL is for, or * for all; repeatable")
@click.option("--prefix", is_flag=True, help="The names are prefixes of names.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDRESS",
    help="Address of the clients; repeatable.  [default: * for all]",
)
@click.option("--deny", is_flag=True, help="Deny the operations. This wins over ACLs that allow.")
@cluster_options()
def add_command(
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    hosts: tuple[str, ...],
    deny: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Allow or deny operations on resources to principals, such as User:alice.

    One ACL is created for each principal, operation, resource and host.
    """
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.core.authorization.acl import (
        Acl,
        Operation,
        PatternType,
        Permission,
        ResourceType,
    )
    from tidelog.shell.client.administration.acls import create_acls
    from tidelog.shell.net.host_address import java_host_address

    resources = _Resources(topics, groups, transactional_ids, cluster).pairs()
    if not resources:
        raise usage_error("name a resource: --topic, --group, --transactional-id or --cluster")
    for principal in principals:
        _check_principal(principal)
    wanted = [
        Acl(
            ResourceType[kind],
            name,
            PatternType.PREFIXED if prefix and kind != "CLUSTER" else PatternType.LITERAL,
            principal,
            host,
            Operation[operation],
            Permission.DENY if deny else Permission.ALLOW,
        )
        for principal in principals
        for kind, name in resources
        for operation in operations or ("ALL",)
        for host in map(java_host_address, hosts or ("*",))
    ]
    with connected_cluster(bootstrap, timeout_s) as connected:
        outcomes = create_acls(connected, wanted)
    changes = [
        done(each.name, each.name) if each.holds else rejected(f"adding '{each.name}'", each)
        for each in outcomes
    ]
    return output.conclude_changes(form, "acls", changes)


def _check_principal(principal: str) -> None:
    if not principal.partition(":")[2]:
        raise usage_error(f"principal {principal!r} has no type; write User:{principal}")


def _filter_options() -> Callable[[F], F]:
    def add(command: F) -> F:
        options = (
            click.option("--principal", metavar="PRINCIPAL", help="Only ACLs of this principal."),
            _operation_option("Only ACLs for this operation."),
            _resource_options("whose ACLs are meant"),
            click.option(
                "--prefix", is_flag=True, help="Only ACLs whose name is exactly this prefix."
            ),
            click.option("--host", metavar="ADDRESS", help="Only ACLs for this address."),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return add


@acl.command(
    "list",
    epilog=examples(
        "tidelog acl list",
        "tidelog acl list --topic orders --matching",
        "tidelog acl list --principal User:alice --format json",
    ),
)
@_filter_options()
@click.option(
    "--matching",
    is_flag=True,
    help="All ACLs that apply to the named resource, also by prefix or *.",
)
@cluster_options()
def list_command(
    principal: str | None,
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    host: str | None,
    matching: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """List ACLs: all, or those that pass every filter."""
    from tidelog.shell.client.administration.acls import list_acls

    resources = _Resources(topics, groups, transactional_ids, cluster)
    wanted = _filter(principal, operations, resources, host, prefix=prefix, matching=matching)
    with connected_cluster(bootstrap, timeout_s) as connected:
        found = list_acls(connected, wanted)
    data = {"acls": [_as_data(each) for each in found]}
    return output.conclude(form, True, data, lambda screen: _show(screen, found))


@acl.command(
    "remove",
    epilog=examples(
        "tidelog acl remove --principal User:alice --topic orders",
        "tidelog acl remove --principal User:alice --yes",
    ),
)
@_filter_options()
@yes_option()
@cluster_options()
def remove_command(
    principal: str | None,
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    host: str | None,
    yes: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Remove the ACLs that pass every filter; at least one filter is required."""
    from tidelog.apps.changes.outcome import done
    from tidelog.shell.client.administration.acls import acl_text, delete_acls, list_acls

    resources = _Resources(topics, groups, transactional_ids, cluster)
    if not (principal or operations or resources.pairs() or host):
        raise usage_error("name what to remove: --principal, --topic, --operation, …")
    wanted = _filter(principal, operations, resources, host, prefix=prefix)
    with connected_cluster(bootstrap, timeout_s) as connected:
        if not yes:
            doomed = list_acls(connected, wanted)
            for each in doomed:
                click.echo(acl_text(each), err=True)
            if doomed:
                click.confirm(f"Remove these {len(doomed)} ACLs?", abort=True, err=True)
        removed = delete_acls(connected, wanted)
    changes = [done(acl_text(each), f"removed: {acl_text(each)}") for each in removed]
    return output.conclude_changes(form, "acls", changes)


def _filter(
    principal: str | None,
    operations: tuple[str, ...],
    resources: _Resources,
    host: str | None,
    *,
    prefix: bool,
    matching: bool = False,
) -> "AclFilter":
    from tidelog.core.authorization.acl import (
        AclFilter,
        Operation,
        PatternType,
        Permission,
        ResourceType,
    )
    from tidelog.shell.net.host_address import java_host_address

    named = resources.pairs()
    if len(named) > 1 or len(operations) > 1:
        raise usage_error("give one resource and one operation; run the command again for more")
    if prefix and matching:
        raise usage_error("give --prefix or --matching, not both")
    if matching and not named:
        raise usage_error("--matching needs a resource, such as --topic NAME")
    kind, name = named[0] if named else ("ANY", None)
    pattern = PatternType.ANY
    if prefix:
        pattern = PatternType.PREFIXED
    elif matching:
        pattern = PatternType.MATCH
    return AclFilter(
        ResourceType[kind],
        name,
        pattern,
        principal,
        None if host is None else java_host_address(host),
        Operation[operations[0]] if operations else Operation.ANY,
        Permission.ANY,
    )


def _as_data(each: "Acl") -> dict[str, str]:
    return {
        "principal": each.principal,
        "permission": each.permission.name,
        "operation": each.operation.name,
        "resource": each.resource_type.name,
        "name": each.resource_name,
        "pattern": each.pattern_type.name,
        "host": each.host,
    }


def _show(screen: "Console", found: Sequence["Acl"]) -> None:
    rows = [tuple(_as_data(each).values()) for each in found]
    output.print_columns(screen, [column.upper() for column in _COLUMNS], rows)
