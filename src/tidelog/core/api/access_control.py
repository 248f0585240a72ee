"""What the principal of one request may do: the authoriser of a broker, bound to the request.

Refused operations are logged, a few lines a minute for each principal: a client that is refused
retries for hours. The log is the audit trail, so its lines name principal, host, operation and
resource; an operation is not logged where Kafka does not log it, such as a name that is only
filtered out of a list.
"""

from collections.abc import Callable, Iterable

from tidelog.core.authorization.acl import CLUSTER_NAME, Operation, ResourceType
from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER, Authorizer
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.principal import Principal
from tidelog.core.settings.broker_settings import BrokerSettings

LINES_MAX = 10
"""Refusals that are logged for one principal in `WINDOW_MS`."""
WINDOW_MS = 60_000
PRINCIPALS_MAX = 1000
"""Principals whose refusals are counted one by one; all others count as one."""
_NAME_MAX = 256
"""Characters of a name that are logged: a client may send thousands."""


class _Window:
    """The refusals of one principal since `began_ms`."""

    __slots__ = ("began_ms", "lines", "more")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.lines = 0
        self.more = 0


class RefusalLog:
    """Notes refused operations, at most `LINES_MAX` a minute for each principal."""

    __slots__ = ("_note", "_now_ms", "_windows")

    def __init__(self, note: Callable[..., None], now_ms: Callable[[], int]) -> None:
        """`note` gets the event's name and its fields."""
        self._note = note
        self._now_ms = now_ms
        self._windows: dict[str, _Window] = {}

    def __call__(
        self,
        principal: Principal,
        host: str,
        api: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> None:
        who, now_ms = str(principal)[:_NAME_MAX], self._now_ms()
        window = self._window(who, now_ms)
        if window.lines >= LINES_MAX:
            window.more += 1
            return
        window.lines += 1
        more, window.more = window.more, 0
        resource = resource_name[:_NAME_MAX]
        what = operation.name, resource_type.name, resource
        self._note("operation_refused", who, host, api, *what, more)

    def _window(self, who: str, now_ms: int) -> _Window:
        found = self._windows.get(who)
        if found is None:
            if len(self._windows) >= PRINCIPALS_MAX:
                who = ""
            found = self._windows.setdefault(who, _Window(now_ms))
        if now_ms - found.began_ms >= WINDOW_MS:
            found.began_ms, found.lines = now_ms, 0
        return found


class BrokerAuthorizer:
    """The authoriser of a broker: the settings, and the ACLs in the image."""

    __slots__ = ("_authorizer", "_image", "_seen", "refused")

    def __init__(self, authorizer: Authorizer, image: ClusterImage, refused: RefusalLog) -> None:
        self._authorizer = authorizer
        self._image = image
        self._seen = -1
        self.refused = refused

    @property
    def acl_changes(self) -> int:
        """A number that changes with every ACL."""
        return self._image.acl_changes

    def current(self) -> Authorizer:
        """Return the authoriser with the ACLs of the image."""
        if self._seen != self._image.acl_changes:
            self._seen = self._image.acl_changes
            self._authorizer.replace_acls(self._image.acls.values())
        return self._authorizer


def broker_authorizer(
    settings: BrokerSettings,
    image: ClusterImage,
    note: Callable[..., None],
    now_ms: Callable[[], int],
) -> BrokerAuthorizer | None:
    """Return the authoriser that the settings ask for; None without one."""
    if settings.get("authorizer.class.name") != STANDARD_AUTHORIZER:
        return None
    authorizer = Authorizer(
        super_users(settings.get("super.users")),
        allow_if_no_acl=settings.get("allow.everyone.if.no.acl.found"),
    )
    return BrokerAuthorizer(authorizer, image, RefusalLog(note, now_ms))


def super_users(text: str) -> list[str]:
    """Split `super.users`: names of certificates contain commas, so semicolons separate them."""
    return [name.strip() for name in text.split(";") if name.strip()]


class Access:
    """What the principal of one request may do. Asking is cheap; a refusal is logged."""

    __slots__ = ("_api", "_authorizer", "_host", "_principal", "_refused")

    def __init__(
        self, authorizer: BrokerAuthorizer, principal: Principal, host: str, api: str
    ) -> None:
        self._authorizer = authorizer.current()
        self._refused = authorizer.refused
        self._principal = principal
        self._host = host
        self._api = api

    def may(
        self, operation: Operation, resource_type: ResourceType, name: str, *, log: bool = True
    ) -> bool:
        """Whether the principal may do this; without `log`, a refusal leaves no line."""
        allowed = self._authorizer.allows(
            self._principal, self._host, operation, resource_type, name
        )
        if not allowed and log:
            self._refused(self._principal, self._host, self._api, operation, resource_type, name)
        return allowed

    def may_on_cluster(self, operation: Operation, *, log: bool = True) -> bool:
        """Whether the principal may do this on the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource on which the principal may do this."""
        return self._authorizer.allows_on_any(self._principal, self._host, operation, resource_type)

    def topics(self, operation: Operation, names: Iterable[str], *, log: bool = True) -> set[str]:
        """The topics on which the principal may do this; each is asked for once."""
        return {
            name
            for name in dict.fromkeys(names)
            if self.may(operation, ResourceType.TOPIC, name, log=log)
        }

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the principal may do on a resource, as Kafka's bit field."""
        return self._authorizer.operations(self._principal, self._host, resource_type, name)

    def cluster_operations(self) -> int:
        """The operations on the cluster; none for a principal that may not describe it."""
        if not self.may_on_cluster(Operation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)


class Reader:
    """Who fetches: the check of each topic of a fetch, under the ACLs of the moment it arrived.

    Two readers are equal if they get the same answers, so that a fetch session notices another
    host and a change of the ACLs.
    """

    __slots__ = ("_access", "_key", "principal")

    def __init__(
        self, authorizer: BrokerAuthorizer, principal: Principal, host: str, api: str
    ) -> None:
        self._access = Access(authorizer, principal, host, api)
        self.principal = principal
        self._key = principal, host, authorizer.acl_changes

    def may_read(self, topic: str) -> bool:
        """Whether this reader may read a topic."""
        return self._access.may(Operation.READ, ResourceType.TOPIC, topic)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reader) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)
