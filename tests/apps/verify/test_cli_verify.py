"""`tidelog verify`: invalid options, and the text of a report."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Invocation
from rich.console import Console

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.verify import VerifyView
from tidelog.apps.verify.checker.findings import KINDS, Findings, Guarantees
from tidelog.apps.verify.nemesis.failover import Failover, Injected
from tidelog.apps.verify.nemesis.plan import KINDS as FAULT_KINDS
from tidelog.apps.verify.report import Figures, Options, Report
from tidelog.apps.verify.workload.librdkafka_security import librdkafka_security
from tidelog.core.settings.jaas import SCRAM_MODULE
from tidelog.core.settings.setting import WrongValue


def run(*arguments: str) -> Invocation:
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli, ["verify", *arguments])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--faults", "kil"], "unknown fault 'kil'; did you mean kill"),
        (["--faults", "kill,none"], "unknown fault 'none'"),
        (
            ["--bootstrap", "localhost:1", "--faults", "kill"],
            "--faults can't be combined with --bootstrap",
        ),
        (["--bootstrap", "localhost:1", "--seconds", "1"], "can't connect to localhost:1"),
        (["--bootstrap", "localhost:notaport"], "is not an address"),
        (["--acks", "0"], "--acks"),
        (["--seconds", "0"], "--seconds"),
        (["--client", "java"], "--client"),
        (["--faults", "cut"], "fault 'cut' needs --machines"),
        (["--machines", "3", "--faults", "damage"], "fault 'damage' is not available"),
        (["--tls", "--machines", "3"], "--tls can't be combined with --machines"),
        (["--tls", "--bootstrap", "localhost:1"], "--bootstrap; give the settings of clients in"),
        (["--machines", "3", "--bootstrap", "localhost:1"], "can't be combined with --bootstrap"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(arguments: list[str], reason: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 1
    assert reason in found.stderr


def test_a_clients_file_is_for_the_named_cluster(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.enabled.protocols=TLSv1.3\n")
    found = run("--command-config", str(file))
    assert "--command-config needs --bootstrap" in found.stderr
    named = run("--command-config", str(file), "--bootstrap", "localhost:1", "--seconds", "1")
    assert "ssl.enabled.protocols can't be used with librdkafka; use --client own" in named.stderr
    assert found.exit_code == named.exit_code == 2


def test_librdkafka_gets_its_names_of_the_settings() -> None:
    found = librdkafka_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="a" password="p w";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "k",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "a",
        "sasl.password": "p w",
        "ssl.ca.location": "/ca.pem",
        "ssl.key.location": "/me.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }
    pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"
    inline = librdkafka_security({"ssl.truststore.certificates": pem.replace("\n", " ")})
    assert inline == {"ssl.ca.pem": pem}
    with pytest.raises(WrongValue, match="can't be used with librdkafka"):
        librdkafka_security({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"})
    with pytest.raises(WrongValue, match="use --client own"):
        librdkafka_security({"sasl.mechanism": "OAUTHBEARER"})


def test_machines_without_root_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    etcd = tmp_path / "etcd"
    etcd.touch(mode=0o755)
    monkeypatch.setenv("ETCD_BIN", str(etcd))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = run("--machines", "3")
    assert found.exit_code == 2
    assert "machines are network namespaces, which need root" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_machines_without_etcd_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_BIN", "/missing/etcd")
    found = run("--machines", "3")
    assert found.exit_code == 2
    assert "etcd is missing; run scripts/set_up_etcd.py, or set ETCD_BIN" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_journals_go_to_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    found = run("--keep", str(tmp_path))
    assert found.exit_code == 2
    assert "is not empty; name a new folder" in found.stderr


FAULTS = [
    Injected("kill", "leader", (2,), 20_000, 31_000, 45_000, (0, 3)),
    Injected("kill", "any", (1,), 90_000, 91_000, None, (1,)),
    Injected("pause, long", "leader", (3,), 150_000, 260_000, 270_000, (2,), "a note", True),
    Injected("skew", "any", (1,), 280_000, 281_000, 281_000, ()),
]
WAITS = [Failover(0, 0, 0.25), Failover(0, 3, 0.5), Failover(1, 1, None), Failover(2, 2, 9.5)]
PAUSES = (6_000, 7_000, 95_000, 1_000)
FIGURES = Figures(
    30.0, 150_000, 3, 0, {"librdkafka": 150_001, "own": 150_002}, 150_003, 9_000, 7, 18
)


def report(findings: Findings | None = None, **changed: object) -> Report:
    options = Options(17, 30, kinds=("kill", "pause"))._replace(**changed)  # type: ignore[arg-type]
    trouble = ["fault 2 took long"]
    found = findings or Findings()
    return Report(options, "t", FIGURES, FAULTS, WAITS, found, trouble, None, PAUSES)


def text(shown: Report) -> str:
    console = Console(width=140, markup=False, highlight=False)
    with console.capture() as captured:
        VerifyView(shown).show(console)
    return captured.get()


def test_a_clean_report() -> None:
    shown = text(report())
    assert all(kind in shown for kind in KINDS)
    assert "5,000" in shown
    assert "note: fault 2 took long" in shown
    assert "A clean run shows" in shown
    assert "tidelog verify --seed 17 --seconds 30 --faults kill,pause\n" in shown
    assert "✓ seed 17: 150,000 acknowledged; 0 lost, 0 anomalies" in shown.splitlines()[-1]


def test_the_times_of_a_report() -> None:
    lines = [line.split() for line in text(report()).splitlines()]
    assert ["1", "kill", "2", "2.00", "1.10", "0.600", "2", "0.500", "1.40"] in lines
    assert ["2", "kill", "1", "9.00", "0.10", "0.700", "1", "never", "never"] in lines
    third = ["3", "pause,", "long", "3", "15.00", "11.00", "9.500", "1", "9.500", "1.00"]
    assert [*third, "the", "controller;", "a", "note"] in lines
    assert ["kill", "2", "0.700", "0.700", "3", "(1", "never)", "0.500", "0.500"] in lines
    assert ["pause,", "long", "1", "9.500", "9.500", "1", "9.500", "9.500"] in lines
    assert ["skew", "1", "0.100", "0.100", "0", "-", "-"] in lines  # the broker led no partition


def broken() -> Findings:
    found = Findings()
    found.add("lost", "partition 0: record 7", 3)
    return found


def test_anomalies_are_reported_with_examples() -> None:
    shown = text(report(broken()))
    assert "partition 0: record 7" in shown
    assert "✗ seed 17: 150,000 acknowledged; 3 × lost" in shown.splitlines()[-1]


def test_allowed_anomalies_are_counted_and_do_not_fail() -> None:
    weak = report(broken(), acks="1", idempotence=False)
    assert weak.holds
    shown = text(weak)
    assert "these settings allow it" in shown
    assert "--acks 1\n" in shown
    assert "✓ seed 17: 150,000 acknowledged; 3 × lost, which these settings allow" in shown


def test_repeat_command_has_the_options_that_differ_from_the_default() -> None:
    shown = text(report(idempotence=False, producers=2, partitions=3, rate=10, client="own"))
    wanted = "--producers 2 --rate 10 --partitions 3 --client own --no-idempotence\n"
    assert wanted in shown
    assert "--bootstrap host:1\n" in text(report(bootstrap="host:1", kinds=()))


def test_the_report_as_data() -> None:
    data = json.loads(json.dumps(report(broken()).as_data()))
    assert data["seed"] == 17
    assert (data["seconds"], data["wrote_seconds"]) == (30, 30.0)
    assert data["kills"] == 2
    assert data["acked_a_second"] == 5000
    assert data["anomalies"]["lost"] == {
        "count": 3,
        "allowed": False,
        "examples": ["partition 0: record 7"],
    }
    assert set(data["anomalies"]) == set(KINDS)
    assert data["failover"]["kill"] == {"partitions": 3, "median_s": 0.5, "max_s": 0.5, "never": 1}
    assert data["pauses"]["kill"] == {"faults": 2, "median_s": 0.7, "max_s": 0.7}
    assert data["pauses"]["skew"] == {"faults": 1, "median_s": 0.1, "max_s": 0.1}
    assert data["faults"][1]["healthy_s"] is None
    assert data["faults"][0] == {
        "kind": "kill",
        "role": "leader",
        "brokers": [2],
        "controller": False,
        "led": [0, 3],
        "begin_s": 2.0,
        "end_s": 3.1,
        "healthy_s": 4.5,
        "note": "",
        "failover_s": {"0": 0.25, "3": 0.5},
        "longest_pause_s": 0.6,
    }


@pytest.mark.parametrize(
    ("section", "names"),
    [("Faults", FAULT_KINDS), ("Anomalies", KINDS)],
    ids=["faults", "anomalies"],
)
def test_the_reference_has_every_kind(section: str, names: dict[str, str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "verify.md"
    text = page.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE) == list(names)


def test_the_reference_lists_the_anomalies_that_settings_allow() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "verify.md"
    rows = re.findall(r"^\| `([^`]+)` \|.*\|([^|]*)\|$", page.read_text(), re.MULTILINE)
    allowed = {kind: allows for kind, allows in rows if kind in KINDS}
    acks_1 = {kind for kind, allows in allowed.items() if "`--acks 1`" in allows}
    unnumbered = {kind for kind, allows in allowed.items() if "`--no-idempotence`" in allows}
    assert acks_1 == Guarantees(acks_all=False, idempotence=False).allows()
    assert unnumbered == Guarantees(idempotence=False).allows()
