"""A pipeline file becomes a plan; every error is one line with its place."""

import io
import json
import re
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.pipeline import FIRST_FILES, batch_line, show_report
from tidelog.apps.pipeline.decoding.value_columns import declared_columns
from tidelog.apps.pipeline.pipeline_file import FREE, SECTIONS, BadFile, parse_plan, read_plan
from tidelog.apps.pipeline.plan import (
    AVAILABLE_NOW,
    AggregatePlan,
    BackfillPlan,
    Decode,
    LandPlan,
    interval_ms,
)
from tidelog.apps.pipeline.report import Progress, Report

ROOT = Path(__file__).parents[2]
LAND = """
[pipeline]
kind = "land"
name = "orders"
bootstrap = "localhost:9092"
topics = ["orders", "returns"]
trigger = "10 seconds"

[source]
startingOffsets = "latest"
maxOffsetsPerTrigger = 1000
includeHeaders = false

[decode]
format = "json"
schema = "id long, amount double"
keep_value = false

[lake]
path = "lake"
compact_files = 8
"""
AGGREGATE = """
[pipeline]
kind = "aggregate"
bootstrap = "localhost:9092"
pattern = "orders-.*"

[aggregate]
window = "10 minutes"
slide = "5 minutes"
watermark = "1 hour"
group_by = ["country"]

[aggregate.columns]
orders = "count(*)"

[output]
table = "/tables/per-country"
topic = "per-country"

[sink]
"kafka.compression.type" = "lz4"
"""
BACKFILL = """
[pipeline]
kind = "backfill"
bootstrap = "localhost:9092"
topics = ["orders"]
[lake]
path = "lake"
[backfill]
topic = "orders-again"
first = 2026-01-01
last = 2026-01-31
"""


def test_land_plan_is_parsed() -> None:
    plan = parse_plan(LAND, "/etc/pipes/x.toml")
    assert isinstance(plan, LandPlan)
    assert (plan.name, plan.trigger, plan.compact_files) == ("orders", "10 seconds", 8)
    assert plan.path == "/etc/pipes/lake"
    assert plan.checkpoint == "/etc/pipes/lake/_tidelog/checkpoint"
    assert plan.origin.topics == ("orders", "returns")
    assert plan.origin.options == {
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "1000",
        "includeHeaders": "false",
    }
    assert plan.decode is not None
    assert (plan.decode.format, plan.decode.keep_value) == ("json", False)


def test_aggregate_plan_is_parsed() -> None:
    plan = parse_plan(AGGREGATE, "/etc/pipes/per-country.toml", bootstrap="other:1")
    assert isinstance(plan, AggregatePlan)
    assert (plan.name, plan.bootstrap) == ("per-country", "other:1")
    assert (plan.window_ms, plan.slide_ms) == (600_000, 300_000)
    assert plan.group_by == ("country",)
    assert plan.columns == {"orders": "count(*)"}
    assert plan.sink == {"kafka.compression.type": "lz4"}
    assert (plan.table, plan.topic) == ("/tables/per-country", "per-country")


def test_backfill_plan_is_parsed() -> None:
    plan = parse_plan(BACKFILL, "/etc/pipes/again.toml")
    assert isinstance(plan, BackfillPlan)
    assert (plan.first, plan.last) == (date(2026, 1, 1), date(2026, 1, 31))
    assert plan.checkpoint == "/etc/pipes/lake/_tidelog/backfill-again"
    assert plan.topic == "orders-again"


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (
            LAND,
            'kind = "land"',
            'kind = "lnad"',
            ":3: pipeline.kind: unknown kind 'lnad'; did you",
        ),
        (LAND, "topics =", "topic =", ":6: pipeline.topic: unknown key; did you mean topics?"),
        (LAND, "topics =", 'pattern = "a"\ntopics =', ": pipeline.topics: set exactly one of"),
        (LAND, "[lake]", "[lakes]", ":19: lakes: unknown section; did you mean lake?"),
        (LAND, "[lake]", "[output]", ":19: output: a land pipeline cannot have this section; it"),
        (LAND, 'path = "lake"', "", ":19: lake.path: key is missing; a land pipeline needs it"),
        (
            LAND,
            'path = "lake"',
            'path = "s3://b/l"',
            ":20: lake.path: must be a path that all",
        ),
        (
            LAND,
            '"10 seconds"',
            '"soon"',
            ":7: pipeline.trigger: 'soon' is invalid; use available",
        ),
        (LAND, "= 8", "= true", ":21: lake.compact_files: must be a whole number"),
        (LAND, "= 8", "= -1", ":21: lake.compact_files: must be 0 or more"),
        (LAND, '"json"', '"jsn"', ":15: decode.format: unknown value 'jsn'; did you mean json?"),
        (LAND, 'name = "orders"', 'name = "a/b"', ":4: pipeline.name: 'a/b' is invalid; use"),
        (LAND, "= false\n\n[decode]", "= []\n\n[decode]", ":12: source.includeHeaders: must be te"),
        (LAND, "keep_value =", 'schema_file = "x"\nkeep_value =', "decode.schema: set exactly one"),
        (LAND, "keep_value = false", 'framing = "confluent"', "confluent framing needs format = "),
        (LAND, "[pipeline]", "", ": kind: this key is outside of a section"),
        (LAND, '"localhost:9092"', "", ": invalid TOML: invalid value (at line 5"),
        (AGGREGATE, '"10 minutes"', '"ten"', ":8: aggregate.window: 'ten' is not a length of time"),
        (AGGREGATE, '"5 minutes"', '"1 hour"', ":9: aggregate.slide: must be longer than 0 and"),
        (AGGREGATE, "orders =", "country =", "aggregate.columns: country is also a column of"),
        (AGGREGATE, 'orders = "count(*)"', "", "aggregate.columns: must define at least one"),
        (AGGREGATE, 'bootstrap = "localhost:9092"', "", ":2: pipeline.bootstrap: key is missing"),
        (LAND, "startingOffsets", "startingOfsets", ":10: source.startingOfsets: format tidelog"),
        (LAND, "= 1000", "= -1", ":11: source.maxOffsetsPerTrigger: maxOffsetsPerTrigger is '-1'"),
        (LAND, '["orders", "returns"]', "[]\npattern = '('", ": pipeline: subscribePattern '(' is"),
        (
            LAND,
            "id long, ",
            "id long,, ",
            ":16: decode.schema: a column is missing next",
        ),
        (LAND, "id long, ", "id, ", ":16: decode.schema: 'id' is not a column; write columns"),
        (
            LAND,
            "id long, ",
            "id lng, ",
            ":16: decode.schema: id: unknown type 'lng'; did you",
        ),
        (LAND, '"json"', '"avro"', ":16: decode.schema: invalid JSON: Expecting value"),
        (
            AGGREGATE,
            "slide",
            'event_time = "timestmp"\nslide',
            ":9: aggregate.event_time: unknown column timestmp; did you mean timestamp",
        ),
        (AGGREGATE, "kafka.compression.type", "kafka.acks", ":21: sink.kafka.acks: kafka.acks"),
        (
            BACKFILL,
            "2026-01-31",
            "2025-01-31",
            ": backfill.first: 2026-01-01 is after backfill.",
        ),
        (BACKFILL, "2026-01-31", '"2026-01-31"', ":11: backfill.last: must be a date: 2026-01-31"),
        (BACKFILL, "[backfill]", "[decode]\n[backfill]", "decode: a backfill pipeline cannot have"),
    ],
)
def test_error_names_its_place(text: str, old: str, new: str, message: str) -> None:
    assert old in text
    with pytest.raises(BadFile) as caught:
        parse_plan(text.replace(old, new, 1), "x.toml")
    line = str(caught.value)
    assert line.startswith("x.toml")
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("id long, placed timestamp NOT NULL COMMENT 'a, b'", ["id", "placed"]),
        ("`a, b` decimal(10, 2), s struct<x: int, y: map<string, int>>", ["a, b", "s"]),
        ("struct<a:int,b:STRING>", ["a", "b"]),
        ('{"type": "struct", "fields": [{"name": "a", "type": "long"}]}', ["a"]),
    ],
)
def test_columns_are_known_without_spark(schema: str, names: list[str]) -> None:
    assert declared_columns(Decode("json", schema)) == names
    assert declared_columns(Decode("json", schema, prefix="v_")) == [f"v_{n}" for n in names]


def test_backfill_requires_an_existing_lake(tmp_path: Path) -> None:
    file = tmp_path / "again.toml"
    file.write_text(BACKFILL)
    refused = CliRunner().invoke(cli, ["pipeline", "check", str(file)])
    assert refused.exit_code == 2
    message = f"tidelog: {file}:7: lake.path: {tmp_path}/lake is not a lake that a land"
    assert refused.stderr.startswith(message)
    (tmp_path / "lake" / "data").mkdir(parents=True)
    assert CliRunner().invoke(cli, ["pipeline", "check", str(file)]).exit_code == 0


def test_without_java_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(LAND)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    refused = CliRunner().invoke(cli, ["pipeline", "run", str(file)])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("tidelog: orders: Spark needs Java")
    assert refused.stderr.count("\n") == 1


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot read the file: No such file"):
        read_plan(str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(BadFile, match="cannot read the file: it is not UTF-8"):
        read_plan(str(tmp_path / "latin.toml"))
    (tmp_path / "x.toml").write_text(LAND.replace("schema =", "schema_file ="))
    with pytest.raises(BadFile, match=r"decode\.schema_file: cannot read .*: No such file"):
        read_plan(str(tmp_path / "x.toml"))


@pytest.mark.parametrize(
    ("text", "ms"), [("1 second", 1000), ("90 Seconds", 90_000), ("2 days", 172_800_000)]
)
def test_valid_intervals(text: str, ms: int) -> None:
    assert interval_ms(text) == ms


@pytest.mark.parametrize("text", ["", "second", "1", "-1 second", "1.5 seconds", "1 month"])
def test_invalid_intervals(text: str) -> None:
    assert interval_ms(text) is None


@pytest.mark.parametrize("kind", FIRST_FILES)
def test_initial_files_are_valid(kind: str) -> None:
    plan = parse_plan(FIRST_FILES[kind], "x.toml", "localhost:9092")
    assert plan.kind == kind
    if not isinstance(plan, BackfillPlan):
        assert plan.trigger == AVAILABLE_NOW


def test_examples_are_valid() -> None:
    kinds = {read_plan(str(path), "x:1").kind for path in (ROOT / "examples").glob("*.toml")}
    assert kinds == {"land", "aggregate", "backfill"}


def test_the_reference_has_every_key() -> None:
    text = (ROOT / "docs" / "reference" / "pipeline-file.md").read_text()
    parts = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
    pages = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert sorted(pages) == sorted({*SECTIONS, *(name for name in FREE if "." not in name)})
    for section, keys in SECTIONS.items():
        message = re.findall(r"^\| `(\w+)` \|", pages[section], flags=re.MULTILINE)
        assert message == list(keys), section


def test_check_shows_the_plan_or_one_line_of_error(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(LAND)
    shown = CliRunner().invoke(cli, ["pipeline", "check", str(file)])
    assert shown.exit_code == 0
    assert "origin.topics" in shown.output
    assert "the file is valid" in shown.output
    message = CliRunner().invoke(cli, ["pipeline", "check", str(file), "--format", "json"])
    assert json.loads(message.stdout)["path"] == str(tmp_path / "lake")
    file.write_text(LAND.replace("topics", "topcs"))
    for command in ("check", "run"):
        refused = CliRunner().invoke(cli, ["pipeline", command, str(file)])
        assert refused.exit_code == 2
        assert refused.stderr == (
            f"tidelog: {file}:6: pipeline.topcs: unknown key; did you mean topics?\n"
        )


def test_progress_has_a_line_per_batch_and_final_sums() -> None:
    plan = parse_plan(LAND, "x.toml")
    report = Report(plan.name, plan.kind)
    for batch in range(2):
        report.add(Progress(batch, 1000, 990, late=1, rejected=9, seconds=0.5, lag=12))
    line = batch_line("orders", Progress(1, 1000, 990, seconds=0.5, lag=1200), report)
    words = "batch 1  in 2,000  out 1,980  late 2  rejected 18  2,000 rows/s  lag 1,200"
    assert words in line
    report.totals = {"rows_in": 5000, "rows_out": 4990, "rejected": 10}
    report.stopped, report.lost, report.notes = True, 3, ["small files were not merged"]
    out = io.StringIO()
    show_report(Console(file=out, width=100), plan, report)
    text = out.getvalue()
    for message in (
        "2,000",
        "4,990",
        "3 offsets were lost",
        "small files were not",
        "stopped; run it",
    ):
        assert message in text


def test_settings_of_spark_are_checked(tmp_path: Path) -> None:
    refused = CliRunner().invoke(cli, ["pipeline", "run", "x", "--conf", "spark.ui"])
    assert refused.exit_code == 2
    assert "'spark.ui' is not in the form KEY=VALUE" in refused.stderr


LOGIN = """
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=alice
sasl.password=of-alice
client.id=ignored
"""


@pytest.fixture
def login_file(tmp_path: Path) -> Path:
    (tmp_path / "client.properties").write_text(LOGIN)
    return tmp_path / "client.properties"


@pytest.mark.parametrize(("text", "section"), [(LAND, "origin"), (AGGREGATE, "sink")])
def test_a_clients_file_gives_source_and_sink_their_security(
    tmp_path: Path, login_file: Path, text: str, section: str
) -> None:
    (tmp_path / "orders.toml").write_text(text)
    words = ["pipeline", "check", str(tmp_path / "orders.toml"), "--format", "json"]
    done = CliRunner().invoke(cli, [*words, "--command-config", str(login_file)])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    for options in [shown["origin"]["options"], *([shown["sink"]] if section == "sink" else [])]:
        assert options["kafka.security.protocol"] == "SASL_SSL"
        assert options["kafka.sasl.username"] == "alice"
        assert options["kafka.sasl.password"] == "*********(redacted)"
        assert "kafka.client.id" not in options
    assert "of-alice" not in done.output


def test_a_plan_shows_no_password() -> None:
    def security(_brokers: str | None) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "of-alice",
        }

    plan = parse_plan(AGGREGATE, "f.toml", security=security)
    assert isinstance(plan, AggregatePlan)
    assert plan.sink["kafka.sasl.password"] == "of-alice"
    assert plan.origin.options["kafka.sasl.password"] == "of-alice"
    assert "of-alice" not in repr(plan)


def test_security_settings_of_file_and_command_line_do_not_mix(
    tmp_path: Path, login_file: Path
) -> None:
    text = LAND.replace("[decode]", '"kafka.ssl.truststore.type" = "PEM"\n[decode]', 1)
    (tmp_path / "orders.toml").write_text(text)
    words = ["pipeline", "check", str(tmp_path / "orders.toml")]
    done = CliRunner().invoke(cli, [*words, "--command-config", str(login_file)])
    assert done.exit_code != 0
    assert "kafka.ssl.truststore.type: --command-config has the security settings" in done.output


def test_security_is_for_the_brokers_that_are_named() -> None:
    asked: list[str | None] = []

    def security(brokers: str | None) -> dict[str, str]:
        asked.append(brokers)
        return {}

    parse_plan(LAND, "f.toml", security=security)
    parse_plan(LAND, "f.toml", "h:1", security=security)
    without = LAND.replace('bootstrap = "localhost:9092"\n', "")
    parse_plan(without, "f.toml", otherwise=lambda: "h:2", security=security)
    assert asked == ["localhost:9092", "h:1", None]
