"""Every setting is used: it reaches a node's configuration, or code reads it by name."""

from dataclasses import fields
from pathlib import Path

import pytest

from tidelog.core.groups.config import GroupConfig
from tidelog.core.node import config as node_config
from tidelog.core.node.config import NodeConfig
from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.topic_keys import SYNONYMS

SOURCES = Path(__file__).parents[2] / "src" / "tidelog"
TABLES = {
    "broker_keys.py",
    "ignored_keys.py",
    "topic_keys.py",
}
TEXT = "\n".join(path.read_text() for path in SOURCES.rglob("*.py") if path.name not in TABLES)
IN_NODE_CONFIG = {
    node_config._NAMES.get(field.name, field.name.replace("_", ".")) for field in fields(NodeConfig)
}
IN_GROUP_CONFIG = {name.replace("_", ".") for name in GroupConfig._fields}
TOPIC_DEFAULTS = {name for names in SYNONYMS.values() for name in names}


def is_read(name: str) -> bool:
    if name in IN_GROUP_CONFIG:
        return True
    return name in IN_NODE_CONFIG or name in TOPIC_DEFAULTS or f'"{name}"' in TEXT


@pytest.mark.parametrize("name", [row.name for row in BROKER.values() if row.has_effect])
def test_setting_is_read(name: str) -> None:
    assert is_read(name)
