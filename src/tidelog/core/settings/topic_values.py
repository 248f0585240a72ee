"""Validation of dynamic settings: of topics, and of brokers at run time.

Every broker reads the values in the metadata store, at once and at each start. So a value has one
spelling there (`normal`), and a value that brokers cannot parse is refused.
"""

import re

from tidelog.core.settings.broker_keys import broker_setting
from tidelog.core.settings.setting import READ_ONLY, Setting, WrongValue, parse, spell
from tidelog.core.settings.topic_keys import TOPIC

NOT_FOR_ONE = ("min.insync.replicas", "unclean.leader.election.enable")
"""Refused for a single broker: leaders change, and neither what counts as committed nor who may
lead must depend on the current leader."""

THROTTLED_REPLICAS = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
)
_THROTTLED = re.compile(r"\*|([0-9]+:[0-9]+)?(,([0-9]+:[0-9]+)?)*")


def topic_problem(name: str, text: str) -> str | None:
    """The reason why a topic cannot have this setting; None if it can."""
    setting = TOPIC.get(name)
    if setting is None:
        return f"unknown topic setting {name}"
    if name in THROTTLED_REPLICAS and not _THROTTLED.fullmatch(text.replace(" ", "")):
        return f"{name}={text!r} is neither `*` nor a list such as 0:1,0:2 (partition:broker)"
    return _problem(setting, text)


def broker_problem(name: str, text: str | None, broker: int | None = None) -> str | None:
    """The reason why a setting of one broker, or of all (None), cannot be changed at run time;
    None if it can. A text of None deletes the dynamic setting."""
    setting = broker_setting(name)
    if setting is None:
        return f"unknown broker setting {name}"
    if setting.dynamic == READ_ONLY:
        whose = "the brokers'" if broker is None else f"broker {broker}'s"
        return f"{name} cannot be changed at run time; change {whose} file and restart"
    if text is None:
        return None
    if not setting.has_effect and (reason := _unmet_protection(name, text)) is not None:
        return reason
    if broker is not None and name in NOT_FOR_ONE:
        return f"{name} can be changed for a topic or for all brokers, not for one broker"
    return _problem(setting, text)


def normal(name: str, text: str) -> str:
    """The one spelling of a valid value; invalid values are returned unchanged."""
    setting = TOPIC.get(name) or broker_setting(name)
    if setting is None:
        return text
    try:
        return spell(parse(setting, text)) or ""
    except WrongValue:
        return text


def _problem(setting: Setting, text: str) -> str | None:
    try:
        parse(setting, text)
    except WrongValue as wrong:
        return f"{setting.name}={text!r} {wrong}"
    return None


def _unmet_protection(name: str, text: str) -> str | None:
    from tidelog.core.settings.protection import unmet_protection

    reason = unmet_protection(name, text)
    return None if reason is None else f"{name}: {reason}"
