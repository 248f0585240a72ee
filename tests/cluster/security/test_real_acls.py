"""ACLs on real brokers: the how-to as it is written, the command line, and Kafka's own tool."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from authorized_sides import (
    ADMIN,
    ALLOWED,
    AUTHORIZED,
    HALF,
    STRANGER,
    Certificates,
    running_tidelog,
)
from broker_process import STOP_S, free_port, logged_events
from certificates import openssl
from client_programs import java_tools
from real_cluster import eventually
from real_kafka import ONE_COPY
from test_real_encrypt_page import BLOCK

from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-acls.md"
ANSWER_S, COMMAND_S = 100, 300
CREATE = ("topic", "create", "orders", "--partitions", "1", "--if-not-exists")


class Authorized(NamedTuple):
    """One broker with an authoriser, and a properties file of each client."""

    folder: Path
    bootstrap: str

    def tidelog(self, *words: str, who: str = ADMIN, given: str = "") -> tuple[int, str]:
        """Run a command as a client; return the exit code and all output."""
        config = self.folder / f"{who}.properties"
        where = ("-b", self.bootstrap, "--timeout", str(ANSWER_S))
        command = [sys.executable, "-m", "tidelog", *words, *where]
        done = subprocess.run(
            [*command, "--command-config", str(config)],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            input=given,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def listed(self, *filters: str) -> list[dict[str, str]]:
        code, text = self.tidelog("acl", "list", *filters, "--format", "json")
        assert code == 0, text
        found: list[dict[str, str]] = json.loads(text)["acls"]
        return found


@pytest.fixture(scope="module")
def authorized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorized]:
    folder = tmp_path_factory.mktemp("acls")
    keys = Certificates(folder)
    for who in (ADMIN, ALLOWED, HALF, STRANGER):
        lines = [f"{name}={value}\n" for name, value in keys.properties(who).items()]
        (folder / f"{who}.properties").write_text("".join(lines))
    with running_tidelog(folder, {**AUTHORIZED, **keys.broker_settings}) as port:
        cluster = Authorized(folder, f"127.0.0.1:{port}")
        eventually(lambda: cluster.tidelog(*CREATE)[0] == 0 or None, "the broker is ready")
        yield cluster


def test_an_acl_allows_what_was_refused(authorized: Authorized) -> None:
    produce = partial(authorized.tidelog, "produce", "orders", who=ALLOWED, given="hello\n")
    code, text = produce()
    assert code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in text

    principal = f"User:CN={ALLOWED}"
    operations = ("--operation", "WRITE", "--operation", "READ")
    code, text = authorized.tidelog("acl", "add", principal, *operations, "--topic", "orders")
    assert code == 0, text
    assert f"{principal} may WRITE topic orders" in text

    eventually(lambda: produce()[0] == 0 or None, "the ACL is in force")
    code, text = authorized.tidelog("consume", "orders", "-e", who=ALLOWED)
    assert (code, "hello" in text) == (0, True), text
    wanted = {
        "event": "operation_refused",
        "principal": principal,
        "operation": "DESCRIBE",
        "resource": "orders",
    }

    def recorded() -> bool:
        events = logged_events(authorized.folder / "tidelog.log")
        return any(wanted.items() <= each.items() for each in events)

    eventually(recorded, "the refusal is in the log")


@pytest.mark.parametrize("spelled", ["::1", "0:0:0:0:0:0:0:1"])
def test_an_acl_is_for_an_ipv6_address(tmp_path: Path, spelled: str) -> None:
    """The address is compared as Java spells it; `tidelog acl` takes any spelling."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    everyone = {
        "allow.everyone.if.no.acl.found": "true",
        "authorizer.class.name": STANDARD_AUTHORIZER,
    }
    settings = {**ONE_COPY, **everyone, "listeners": "PLAINTEXT://[::1]:0"}
    with running_tidelog(tmp_path, settings) as port:

        def tidelog(*words: str, given: str = "") -> str:
            command = [sys.executable, "-m", "tidelog", *words, "-b", f"[::1]:{port}"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_S, input=given, check=False
            )
            return done.stdout + done.stderr

        create = ("topic", "create", "orders", "--partitions", "1")
        eventually(lambda: "created" in tidelog(*create) or None, "the broker is ready")
        produce = ("produce", "orders")
        assert "AUTHORIZATION" not in tidelog(*produce, given="one\n")
        denied = ("acl", "add", "User:*", "--deny", "--topic", "orders", "--operation", "WRITE")
        added = tidelog(*denied, "--host", spelled)
        assert "0:0:0:0:0:0:0:1" in added
        eventually(
            lambda: "TOPIC_AUTHORIZATION_FAILED" in tidelog(*produce, given="two\n") or None,
            "the ACL is in force",
        )
        assert "0:0:0:0:0:0:0:1" in tidelog("acl", "list", "--host", spelled)


def test_acls_are_listed_and_removed_by_filters(authorized: Authorized) -> None:
    add = partial(authorized.tidelog, "acl", "add")
    assert add("User:a", "--operation", "READ", "--topic", "app-", "--prefix", "--deny")[0] == 0
    assert add("User:a", "--group", "g", "--host", "10.0.0.1")[0] == 0
    assert add("User:b", "--topic", "*", "--operation", "describe", "--cluster")[0] == 0

    [prefixed] = eventually(lambda: authorized.listed("--topic", "app-", "--prefix"), "the ACL")
    assert prefixed == {
        "principal": "User:a",
        "permission": "DENY",
        "operation": "READ",
        "resource": "TOPIC",
        "name": "app-",
        "pattern": "PREFIXED",
        "host": "*",
    }

    def matching() -> set[str]:
        return {each["name"] for each in authorized.listed("--topic", "app-1", "--matching")}

    eventually(lambda: matching() == {"app-", "*"}, "the ACLs of a matching topic")
    assert [each["resource"] for each in authorized.listed("--host", "10.0.0.1")] == ["GROUP"]
    assert len(authorized.listed("--principal", "User:b", "--operation", "DESCRIBE")) == 2

    code, text = authorized.tidelog("acl", "remove", "--principal", "User:a", given="n\n")
    assert code != 0, "not confirmed"
    assert "User:a may not READ topic with prefix app-" in text
    code, text = authorized.tidelog("acl", "remove", "--principal", "User:a", "--yes")
    assert (code, text.count("removed: ")) == (0, 2), text
    eventually(lambda: not authorized.listed("--principal", "User:a") or None, "they are gone")
    assert authorized.listed("--principal", "User:b")


def test_acl_commands_refuse_wrong_words(authorized: Authorized) -> None:
    for words, message in (
        (("add", "alice", "--topic", "t"), "write User:alice"),
        (("add", "User:alice"), "name a resource"),
        (("remove", "--yes"), "name what to remove"),
        (("list", "--topic", "a", "--group", "b"), "give one resource"),
        (("list", "--matching"), "needs a resource"),
    ):
        code, text = authorized.tidelog("acl", *words)
        assert (code, message in text) == (2, True), text


def test_a_stranger_gets_one_line(authorized: Authorized) -> None:
    for words in (
        ("acl", "list"),
        ("acl", "add", "User:x", "--topic", "x"),
        ("acl", "remove", "--principal", "User:x", "--yes"),
        ("partition", "describe", "orders/0"),
    ):
        code, text = authorized.tidelog(*words, who=STRANGER)
        assert code == 1
        assert "Traceback" not in text
        assert "AUTHORIZATION_FAILED" in text, text


def test_details_of_replicas_need_describe_on_the_cluster(authorized: Authorized) -> None:
    authorized.tidelog("acl", "add", f"User:CN={HALF}", "--topic", "orders")
    describe = partial(authorized.tidelog, "partition", "describe", "orders/0", who=HALF)

    def text_of_refusal() -> str | None:
        _, text = describe()
        return None if "AUTHORIZATION_FAILED" in text else text

    text = eventually(text_of_refusal, "the topic is visible")
    assert "Traceback" not in text
    assert "DESCRIBE on the cluster is needed" in text
    authorized.tidelog("acl", "add", f"User:CN={HALF}", "--operation", "DESCRIBE", "--cluster")
    eventually(lambda: describe()[0] == 0 or None, "it is allowed")


@pytest.mark.slow
def test_kafkas_own_tool_works(authorized: Authorized) -> None:
    def kafka_acls(*words: str) -> str:
        config = str(authorized.folder / f"{ADMIN}.properties")
        where = ["--bootstrap-server", authorized.bootstrap, "--command-config", config]
        done = subprocess.run(
            [*java_tools(), "org.apache.kafka.tools.AclCommand", *where, *words],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    about = ("--topic", "t", "--group", "g")
    kafka_acls("--add", "--allow-principal", "User:tool", "--consumer", *about)
    kafka_acls("--add", "--deny-principal", "User:tool", "--operation", "Write", "--topic", "t")
    shown = eventually(
        lambda: text if "DENY" in (text := kafka_acls("--list", "--topic", "t")) else None, "listed"
    )
    assert "principal=User:tool, host=*, operation=READ, permissionType=ALLOW" in shown
    assert {each["operation"] for each in authorized.listed("--principal", "User:tool")} == {
        "READ",
        "DESCRIBE",
        "WRITE",
    }
    kafka_acls("--remove", "--force", "--topic", "t")
    kafka_acls("--remove", "--force", "--group", "g")
    eventually(lambda: not authorized.listed("--principal", "User:tool") or None, "removed")


def test_users_of_sasl_are_principals(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    passwords = {"admin": "of the admin", "alice": "of alice"}
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    for name, password in passwords.items():
        login = f'{module} username="{name}" password="{password}";'
        protocol = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
        lines = (*protocol, f"sasl.jaas.config={login}")
        (tmp_path / f"{name}.properties").write_text("\n".join(lines))
    settings = {
        **ONE_COPY,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {users};",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with running_tidelog(tmp_path, settings) as port:
        cluster = Authorized(tmp_path, f"127.0.0.1:{port}")
        admin, alice = (partial(cluster.tidelog, who=name) for name in passwords)
        eventually(lambda: admin(*CREATE)[0] == 0 or None, "the broker is ready")

        code, text = alice("produce", "orders", given="hello\n")
        assert (code, "AUTHORIZATION_FAILED" in text) == (1, True), text
        code, text = alice("acl", "add", "User:alice", "--topic", "orders")
        assert (code, "CLUSTER_AUTHORIZATION_FAILED" in text) == (1, True), text
        assert admin("acl", "add", "User:alice", "--topic", "orders")[0] == 0
        eventually(lambda: alice("produce", "orders", given="hello\n")[0] == 0 or None, "allowed")
        assert "hello" in alice("consume", "orders", "-e")[1]


@pytest.mark.ci
def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    openssl(tmp_path, "version")  # skips where there is none
    page = PAGE.read_text().replace("localhost:9292", f"localhost:{free_port()}")
    # A busy machine may hold up the broker for longer than users want to wait.
    page = page.replace("--command-config", f"--timeout {ANSWER_S} --command-config")
    certificates, broker, admin, allowed, denied = (text for _, text in BLOCK.findall(page))
    programs = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", "-e", "-o", "pipefail", "-c", text]
        options: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
        return subprocess.run(command, cwd=tmp_path, env=environment, timeout=COMMAND_S, **options)

    done = run(certificates)
    assert done.returncode == 0, done.stderr
    (tmp_path / "server.properties").write_text(broker)
    (tmp_path / "admin.properties").write_text(admin)
    started = [sys.executable, "-m", "tidelog", "broker", "--config", "server.properties"]
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(started, cwd=tmp_path, stderr=file)
    try:
        ready = "\n".join(line for line in allowed.splitlines() if "tidelog" not in line)
        eventually(lambda: run(ready + LIST).returncode == 0 or None, "the broker is ready")
        done = run(allowed)
        assert done.returncode == 0, done.stderr + log.read_text()
        assert "User:alice may READ topic orders" in done.stdout
        assert done.stdout.endswith("hello\n")
        export = next(line for line in allowed.splitlines() if line.startswith("export"))
        done = run(f"{export}\n{denied}")
        assert done.returncode == 0, done.stderr + log.read_text()
        assert "removed: User:alice may READ topic orders" in done.stdout
    finally:
        process.terminate()
        process.wait(STOP_S)


LIST = "\ntidelog topic list --command-config admin.properties\n"
