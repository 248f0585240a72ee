"""Find the address of an archive as pip does, and download it with pip's settings.

The settings come from pip itself, which reads its files and PIP_*: index, proxy, certificates,
trusted hosts. A password comes from the address or from netrc. This file names no index: without a
setting it uses the default of this pip.
"""

import ast
import base64
import contextlib
import netrc
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

SECTIONS = (":env:", "download", "wheel", "install", "global")
"""Sections of pip's settings, highest precedence first."""
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
TIMEOUT_S = 60.0
_DEFAULT_INDEX = re.compile(r"--index-url.*?\(default (\S+?)\)")


class NoSuchArchive(Exception):
    """No index has the archive; the message is one line that names the indexes."""


class PackageIndex:
    """The indexes of the pip that belongs to this Python."""

    def __init__(self) -> None:
        self._settings = _pip_settings()
        self.timeout_s = float(self._setting("timeout", "default-timeout") or TIMEOUT_S)
        self._password: dict[str, str] = {}
        trusting, checking = self._opener(verify=False), self._opener(verify=True)
        trusted = self._setting("trusted-host").split()
        self._openers = dict.fromkeys(trusted, trusting)
        self._checking = checking

    def _setting(self, *names: str) -> str:
        found = (self._settings.get(f"{section}.{name}") for section in SECTIONS for name in names)
        return next((value for value in found if value), "")

    def _opener(self, verify: bool) -> urllib.request.OpenerDirector:
        bundle = self._setting("cert") or next(filter(None, map(os.environ.get, BUNDLES)), None)
        context = ssl.create_default_context(cafile=bundle)
        if bundle is None:
            with contextlib.suppress(ImportError):
                # Not every Python knows the machine's folder of certificates; pip includes some.
                from pip._vendor import certifi

                context.load_verify_locations(certifi.where())
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        proxy = self._setting("proxy")
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        return urllib.request.build_opener(*handlers)

    def open(self, url: str, begin: int = 0) -> Any:
        """Send a GET; the response starts at `begin` if the server supports that (status 206)."""
        address, password = _without_password(url)
        request = urllib.request.Request(address, headers={"Accept-Encoding": "identity"})
        host = urlsplit(address).netloc
        if password:
            self._password[host] = password
        if host in self._password:
            request.add_unredirected_header("Authorization", f"Basic {self._password[host]}")
        if begin:
            request.add_header("Range", f"bytes={begin}-")
        name = urlsplit(address).hostname or ""
        opener = self._openers.get(host) or self._openers.get(name) or self._checking
        return opener.open(request, timeout=self.timeout_s)

    def indexes(self) -> list[str]:
        """Return the indexes that pip uses, in its order."""
        if self._setting("no-index") not in ("", "0", "false", "no", "off"):
            return []
        first = self._setting("index-url") or _default_index()
        return [*filter(None, [first]), *self._setting("extra-index-url").split()]

    def find(self, project: str, archive: str) -> str:
        """Return the address of an archive.

        Raises NoSuchArchive, or OSError if an index fails and no other one has the archive.
        """
        failure: OSError | None = None
        indexes = self.indexes()
        for index in indexes:
            page = f"{index.rstrip('/')}/{project}/"
            try:
                with self.open(page) as response:
                    text = response.read().decode("utf-8", "replace")
                    page = str(response.url)
            except OSError as error:
                failure = error
                continue
            for link in _links(text):
                address = urljoin(page, link)
                if unquote(Path(urlsplit(address).path).name) == archive:
                    return address.partition("#")[0]
        if failure is not None:
            raise failure
        searched = (
            ", ".join(_without_password(index)[0] for index in indexes) or "PIP_NO_INDEX is set"
        )
        raise NoSuchArchive(f"no package index in pip's settings has {archive} ({searched})")


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


def _links(page: str) -> list[str]:
    parser = _Anchors()
    parser.feed(page)
    return parser.links


def _without_password(url: str) -> tuple[str, str]:
    """Return the address without a password, and the value for Basic authorization or ""."""
    parts = urlsplit(url)
    user, password, host = parts.username, parts.password, parts.netloc.rpartition("@")[2]
    if user is None:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            entry = netrc.netrc().authenticators(parts.hostname or "")
            if entry is not None:
                user, password = entry[0], entry[2]
    if user is None:
        return url, ""
    secret = f"{unquote(user)}:{unquote(password or '')}".encode()
    return urlunsplit(parts._replace(netloc=host)), base64.b64encode(secret).decode()


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    environment = {**os.environ, "COLUMNS": "2000", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    ).stdout


def _pip_settings() -> dict[str, str]:
    settings = {}
    for line in _pip("config", "list").splitlines():
        key, _, value = line.partition("=")
        with contextlib.suppress(ValueError, SyntaxError):
            settings[key] = str(ast.literal_eval(value))
    return settings


def _default_index() -> str:
    found = _DEFAULT_INDEX.search(_pip("download", "--help"))
    return found[1] if found else ""
