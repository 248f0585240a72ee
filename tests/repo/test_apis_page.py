"""The page of APIs matches the code, and offered versions are within those of Kafka."""

import gzip
import json
from pathlib import Path

from tidelog.apps import apis_page
from tidelog.apps.apis_page import KAFKA_APIS, WHY_NOT
from tidelog.core.api_table import API_VERSIONS, APIS, OFFERED, PRIVATE, PRODUCE
from tidelog.core.wire.codec import decode_response

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "apis.md"
FRAMES = TESTS / "data" / "kafka-4.3.1" / "wire.jsonl.gz"
LINES_MAX = 150
ONLY_WITH_A_PLUGIN = {71, 72}


def shown(first: int, last: int) -> str:
    return f"{first}–{last}" if first < last else str(first)


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == apis_page.page(), (
        "run: python -m tidelog.apps.apis_page docs/reference/apis.md"
    )
    assert len(PAGE.read_text().splitlines()) <= LINES_MAX


def test_page_has_every_api_once_with_its_versions() -> None:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ")
    ]
    rows = [row for row in cells if row[0].isdigit() and int(row[0]) not in PRIVATE]
    assert [int(row[0]) for row in rows] == sorted(KAFKA_APIS)
    for row in rows:
        api, here = KAFKA_APIS[int(row[0])], OFFERED.get(int(row[0]))
        ours = "no" if here is None else shown(here.first, here.last)
        assert row[1:4] == [api.name, ours, shown(api.first, api.last)]
        assert row[5], "each has a note"


def test_offered_versions_are_within_kafkas() -> None:
    for key, ours in OFFERED.items():
        kafkas = KAFKA_APIS[key]
        assert ours.name == kafkas.name
        assert kafkas.first <= ours.first <= ours.last <= kafkas.last


def test_codec_uses_kafkas_names() -> None:
    spoken = {key: api.name for key, api in APIS.items() if key not in PRIVATE}
    assert spoken == {key: KAFKA_APIS[key].name for key in spoken}


def test_every_missing_api_has_a_reason() -> None:
    assert set(WHY_NOT) == set(KAFKA_APIS) - set(OFFERED)


def test_table_of_kafkas_versions_matches_a_kafka_broker() -> None:
    answers = [
        decode_response(API_VERSIONS, exchange["api_version"], bytes.fromhex(exchange["response"]))
        for line in gzip.decompress(FRAMES.read_bytes()).splitlines()
        if (exchange := json.loads(line))["api_key"] == API_VERSIONS
    ]
    told = [
        {api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]}
        for _, answer in answers
    ]
    table = {key: (api.first, api.last) for key, api in KAFKA_APIS.items()}
    table[PRODUCE] = (0, table[PRODUCE][1])  # advertised so, and served from 3 on
    for key in ONLY_WITH_A_PLUGIN:
        del table[key]
    assert told
    assert all(answer == table for answer in told)


def test_every_note_is_about_an_api() -> None:
    assert not [name for name in apis_page.NOTES if name not in PAGE.read_text()]
