"""IP addresses are spelled as in Java, so that ACLs of Kafka's tools match."""

import socket

import pytest

from tidelog.shell.net.host_address import java_host_address


@pytest.mark.parametrize(
    ("given", "java"),
    [
        # InetAddress.getByName(given).getHostAddress() in Java 17
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("2001:DB8::00a0:1", "2001:db8:0:0:0:0:a0:1"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::10.0.0.1", "0:0:0:0:0:0:a00:1"),
        ("fe80::1%2", "fe80:0:0:0:0:0:0:1%2"),
        # not addresses
        ("*", "*"),
        ("a:b", "a:b"),
        ("::1\0", "::1\0"),
        ("", ""),
    ],
)
def test_addresses_are_spelled_as_in_java(given: str, java: str) -> None:
    assert java_host_address(given) == java
    assert java_host_address(java) == java


def test_the_scope_is_a_number() -> None:
    index, name = socket.if_nameindex()[0]
    assert java_host_address(f"fe80::1%{name}") == f"fe80:0:0:0:0:0:0:1%{index}"
