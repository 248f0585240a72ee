"""What is sent to an identity provider, and by which way."""

import pytest
from issuer import running_provider

from tidelog.core.settings.tls import TlsSettings
from tidelog.shell.oauth.document import Form, read_document


def test_http_goes_to_this_machine_and_not_to_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with running_provider() as provider, running_provider() as proxy:
        provider.answers["/token"] = (200, b"the answer")
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        form = Form("Basic c2VjcmV0", b"grant_type=client_credentials")
        assert read_document(provider.url("/token"), TlsSettings(), form) == b"the answer"
        assert proxy.requests == []
