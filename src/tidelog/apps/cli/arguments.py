"""Arguments that commands share: configs, lists of brokers, regular expressions.

Invariant: an invalid value is reported before any request is sent.
"""

import re
from collections.abc import Callable

import click

from tidelog.apps.cli.usage import F

PARTITIONS_MAX = BROKER_ID_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1
"""Limits of the protocol; brokers enforce their own, smaller ones."""


def read_settings(
    _ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Parse `key=value`, each key once. A value may be empty, and may contain equals signs."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not key or not equals:
            raise click.BadParameter(
                f"{text!r} is not in the form key=value, such as retention.ms=60000"
            )
        if key in found:
            raise click.BadParameter(f"{key} is given twice", param=param)
        found[key] = value
    return found


def read_brokers(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> list[int] | None:
    """Parse `1,2,3`, each id once."""
    return None if text is None else broker_ids(text, ",")


def read_assignment(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> list[list[int]]:
    """Parse `1:2,2:3`: the brokers of each partition, in the form of Kafka's tools."""
    return [] if text is None else [broker_ids(each, ":") for each in text.split(",")]


def broker_ids(text: str, separator: str) -> list[int]:
    """Parse broker ids between separators. Raises BadParameter."""
    words = [word.strip() for word in text.split(separator)]
    if not all(word.isdecimal() for word in words):
        example = separator.join(("1", "2", "3"))
        raise click.BadParameter(f"{text!r} is not a list of broker ids, such as {example}")
    ids = [int(word) for word in words]
    if max(ids) > BROKER_ID_MAX:
        raise click.BadParameter(
            f"broker id {max(ids)} is too large; the maximum is {BROKER_ID_MAX}"
        )
    if len(set(ids)) < len(ids):
        raise click.BadParameter(f"{text!r} lists a broker twice")
    return ids


def expressions(names: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Compile regular expressions. Raises UsageError."""
    found = []
    for name in names:
        try:
            found.append(re.compile(name))
        except re.error as error:
            message = f"{name!r} is not a valid regular expression: {error}"
            raise click.UsageError(message, click.get_current_context(silent=True)) from error
    return found


def config_option(*names: str, help_text: str) -> Callable[[F], F]:
    """Return an option that takes `key=value` and may be repeated."""
    return click.option(
        *names,
        "settings",
        multiple=True,
        callback=read_settings,
        metavar="KEY=VALUE",
        help=help_text,
    )


def regex_option(help_text: str) -> Callable[[F], F]:
    """Return `--regex`: names are regular expressions."""
    return click.option("--regex", "-r", is_flag=True, help=help_text)


def internal_option() -> Callable[[F], F]:
    """Return `--internal`: include internal topics."""
    return click.option(
        "--internal",
        "-i",
        is_flag=True,
        help="Include internal topics, such as __consumer_offsets.",
    )
