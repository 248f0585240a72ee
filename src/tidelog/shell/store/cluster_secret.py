"""The cluster's secret in a file that an operator copies to every machine.

With `tidelog.cluster.secret.file` the metadata store does not contain the secret. It contains a
value that is computed from it, by which a broker recognises a wrong file. So the secret is never
sent over a network, even if the connection to etcd is not encrypted.

Invariant: all brokers of a cluster use the file, or all use the secret in the store.
"""

import json

from tidelog.core.api.handshake import hmac_sha256
from tidelog.shell.store.store_backend import ClusterIdentity, StoreUnusable, parse_identity

SETTING = "tidelog.cluster.secret.file"
LENGTH_MIN = 32
"""Characters. The store shows a value that is computed from the secret, so the secret must be too
long to guess."""
_PURPOSE = b"tidelog cluster "


def read_secret(path: str) -> str:
    """Read the secret: the file's text without blanks around it. Raises StoreUnusable."""
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise StoreUnusable(
            f"can't read {SETTING} {path}: {reason}; copy the file from a machine of the cluster"
        ) from error
    if len(secret) < LENGTH_MIN:
        raise StoreUnusable(
            f"{SETTING} {path} has {len(secret)} characters, at least {LENGTH_MIN} are needed;"
            " write a random one: head -c 32 /dev/urandom | base64"
        )
    return secret


def without_secret(identity: bytes, path: str) -> bytes:
    """Replace the secret in an encoded identity by its check value, if there is a file."""
    if not path:
        return identity
    cluster_id = parse_identity(identity).cluster_id
    check = _check_value(cluster_id, read_secret(path))
    return json.dumps({"cluster_id": cluster_id, "secret_check": check}).encode()


def complete(identity: ClusterIdentity, path: str, place: str) -> ClusterIdentity:
    """Add the secret in the file to the identity in the store at `place`. Raises StoreUnusable."""
    if not identity.secret_check:
        if path:
            raise StoreUnusable(
                f"metadata store {place} contains the secret of cluster {identity.cluster_id};"
                f" remove {SETTING}, or copy the store while {SETTING} is set: tidelog store copy"
            )
        return identity
    if not path:
        raise StoreUnusable(
            f"metadata store {place} does not contain the secret of cluster"
            f" {identity.cluster_id}; copy the secret's file from another machine of the cluster,"
            f" and name it with {SETTING} or `tidelog up --secret-file`"
        )
    secret = read_secret(path)
    if _check_value(identity.cluster_id, secret) != identity.secret_check:
        raise StoreUnusable(
            f"{SETTING} {path} is not the secret of cluster {identity.cluster_id} in {place}; copy"
            " the file from another machine of the cluster"
        )
    return identity._replace(secret=secret)


def _check_value(cluster_id: str, secret: str) -> str:
    return hmac_sha256(secret.encode(), _PURPOSE + cluster_id.encode()).hex()
