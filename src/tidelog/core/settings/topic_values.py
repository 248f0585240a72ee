"""Which settings a topic may get, and which of a broker's may change while it runs.

Whatever gets into the metadata store is read by every broker, at once and at each start. So
a value has one spelling there, `normal`, and nothing that a broker can't read is let in.
"""

from tidelog.core.settings.broker_keys import broker_setting
from tidelog.core.settings.setting import READ_ONLY, Setting, WrongValue, parse, spell
from tidelog.core.settings.topic_keys import TOPIC

NOT_FOR_ONE = ("min.insync.replicas", "unclean.leader.election.enable")
"""Leaders come and go; what is committed, and who may lead, must not depend on which."""


def topic_problem(name: str, text: str) -> str | None:
    """Why a topic can't have the setting."""
    setting = TOPIC.get(name)
    return f"no topic setting is called {name}" if setting is None else _problem(setting, text)


def broker_problem(name: str, text: str | None, broker: int | None = None) -> str | None:
    """Why a setting of one broker, or of all (None), can't be changed now; a text of None
    takes a change back."""
    setting = broker_setting(name)
    if setting is None:
        return f"no broker setting is called {name}"
    if setting.dynamic == READ_ONLY:
        whose = "the brokers'" if broker is None else f"broker {broker}'s"
        return f"{name} can't be changed while a broker runs; change {whose} file and restart"
    if text is None:
        return None
    if not setting.heeded and (reason := _unmet_protection(name, text)) is not None:
        return reason
    if broker is not None and name in NOT_FOR_ONE:
        return f"{name} can be changed for a topic or for all brokers, not for one"
    return _problem(setting, text)


def normal(name: str, text: str) -> str:
    """The one spelling of a sound value; others are left as they are."""
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
