"""The metrics of a real broker behind TLS and credentials."""

import base64
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from authorized_sides import Certificates, running_tidelog
from broker_process import logged_events
from real_cluster import eventually
from real_kafka import ONE_COPY

USER_AND_PASSWORD = "prometheus:the password"


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in logged_events(folder / "tidelog.log") if event["event"] == kind]


def test_metrics_need_tls_and_a_password(tmp_path: Path) -> None:
    keys = Certificates(tmp_path)
    file = tmp_path / "credentials"
    file.write_text(f"{USER_AND_PASSWORD}\n")
    file.chmod(0o600)
    settings = {
        **ONE_COPY,
        **keys.broker_settings,
        "tidelog.metrics.listener": "127.0.0.1:0",
        "tidelog.metrics.security.protocol": "SSL",
        "tidelog.metrics.credentials.file": str(file),
        "listener.name.metrics.ssl.client.auth": "none",  # clients of Kafka need a certificate
    }
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with running_tidelog(tmp_path, settings):
        [listening] = events(tmp_path, "listening")
        address = str(listening["metrics"])
        assert address.startswith("https://127.0.0.1:")
        assert f"metrics at {address}/metrics" in listening["text"]

        def get(path: str, credentials: str = "", at: str = address) -> str:
            request = urllib.request.Request(f"{at}{path}")
            if credentials:
                text = base64.b64encode(credentials.encode()).decode()
                request.add_header("Authorization", f"Basic {text}")
            with urllib.request.urlopen(request, timeout=60, context=trusting) as answer:
                return str(answer.read().decode())

        assert "kafka_server" in get("/metrics", USER_AND_PASSWORD)
        for wrong in ("", "prometheus:guess"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get("/metrics", wrong)
            refused.value.close()
            assert refused.value.code == 401
        assert "ok" in eventually(lambda: get("/healthz"), "the broker serves")

        with pytest.raises((OSError, urllib.error.URLError)):
            get("/healthz", at=address.replace("https:", "http:"))
        refusals = events(tmp_path, "metrics_refused")
        assert len(refusals) == 2
        assert "missing or wrong credentials" in refusals[0]["text"]
        assert refusals[0]["peer"].startswith("127.0.0.1:")
        assert 'reason="authentication"' in get("/metrics", USER_AND_PASSWORD)
    log = (tmp_path / "tidelog.log").read_text()
    assert "the password" not in log
    assert "Basic" not in log
