"""The settings of authorisation, under Kafka's names."""

from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER
from tidelog.core.settings.setting import LOW, Setting

AUTHORIZATION = (
    Setting(
        "authorizer.class.name",
        "string",
        "",
        "The authoriser. Empty: every client may do everything. Kafka's `StandardAuthorizer`: ACLs"
        " in the metadata store decide.",
        choices=("", STANDARD_AUTHORIZER),
        importance=LOW,
        note="Other classes can't be used.",
    ),
    Setting(
        "super.users",
        "string",
        "",
        "Principals that may do everything, separated by semicolons: `User:admin;User:CN=ops`.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        "boolean",
        False,
        "Whether every principal may use a resource that no ACL names.",
    ),
)
