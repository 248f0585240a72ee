"""What all commands share: groups, error messages, examples, options and their values.

Invariants: an error is one line on stderr that says what to do next; invalid usage exits with 2.
An invalid value is reported before any request is sent. Nothing here imports the lab, so that
`--help` is fast; values are validated only if given.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tidelog.apps.near_names import near

if TYPE_CHECKING:
    from tidelog.core.history import HistoryEvent

F = TypeVar("F", bound=Callable[..., object])

BAD_USAGE = 2
INTERRUPTED = 130
SENTENCE_MAX = 200
PARTITIONS_MAX = BROKER_ID_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1
"""Limits of the protocol; brokers enforce their own, smaller ones."""
POLICY_NAMES = "leader-epoch (shipped), high-watermark, kip-101 or kip-279"
TRANSACTION_RULE_NAMES = "transaction-v2 (shipped), transaction-v1 or transaction-v1-unverified"


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, given as "module:attribute" and imported at first use."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places: dict[str, str | click.Command] = dict(places)

    def __getitem__(self, name: str) -> click.Command:
        place = self._places[name]
        if isinstance(place, str):
            module, _, attribute = place.partition(":")
            place = self._places[name] = getattr(import_module(module), attribute)
        return place

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places


class Section(click.Group):
    """A group of commands that suggests names for mistyped ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List commands in the order of definition, not by letter."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the first sentence of each command uncut, wrapped if needed."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(SENTENCE_MAX)) for name in names]
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help if a group is called without a command."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Reject an unknown command, and suggest the nearest name."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            ctx.fail(f"unknown command {name!r}; {near(name, known)}")
        return super().resolve_command(ctx, args)


class Root(Section):
    """The root group: the return value of a command is the exit code."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command, and exit."""
        extra = {**extra, "prog_name": "tidelog", "standalone_mode": False}
        try:
            status = super().main(*args, **extra)
        except click.ClickException as error:
            click.echo(_one_line(error), err=True)
            status = BAD_USAGE
        except OSError as error:
            click.echo(f"tidelog: can't write the result: {error.strerror}", err=True)
            status = BAD_USAGE
        except click.Abort:
            click.echo("tidelog: interrupted", err=True)
            status = INTERRUPTED
        sys.exit(status)


def _one_line(error: click.ClickException) -> str:
    what = " ".join(error.format_message().split())
    what = what.replace("a valid integer range", "a whole number")
    line = f"tidelog: {what[:1].lower()}{what[1:]}".rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        line += f"{'' if line.endswith('?') else '.'} See: {error.ctx.command_path} --help"
    return line


def _known_policy(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    from tidelog.lab.historical_truncation import POLICIES

    return _known_name(name, POLICIES)


def _known_rule(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    from tidelog.lab.story.rules import RULES

    return _known_name(name, RULES)


def _known_name(name: str | None, known: Mapping[str, object]) -> str | None:
    if name is not None and name not in known:
        raise click.BadParameter(f"unknown rule {name!r}; {near(name, known)}")
    return name


def format_option(*forms: str) -> Callable[[F], F]:
    """Return `--format`: text, json, and further formats of the command."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", *forms]),
        default="text",
        show_default=True,
        help="Output format.",
    )


def policy_option(text: str, default: str | None = "leader-epoch") -> Callable[[F], F]:
    """Return `--policy`: the truncation rule that followers use."""
    return click.option(
        "--policy",
        callback=_known_policy,
        default=default,
        show_default=default is not None,
        metavar="RULE",
        help=f"{text}: {POLICY_NAMES}.",
    )


def story_rule_option() -> Callable[[F], F]:
    """Return `--policy` of a story: a rule of truncation or of transactions."""
    return click.option(
        "--policy",
        callback=_known_rule,
        metavar="RULE",
        help="Run under this rule only (called a policy in options and JSON):"
        f" {POLICY_NAMES}; in stories about transactions {TRANSACTION_RULE_NAMES}.",
    )


def workers_option() -> Callable[[F], F]:
    """Return `--workers`: the number of processes."""
    return click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Number of processes.  [default: one per core]",
    )


def story_file_option(text: str) -> Callable[[F], F]:
    """Return `--story FILE`: where to write a failure as a story."""
    return click.option(
        "--story",
        "story_file",
        type=click.Path(dir_okay=False, writable=True),
        callback=_in_a_folder,
        metavar="FILE",
        help=text,
    )


def history_option(
    text: str = "Write the events of the brokers to FILE, as in a broker's JSON log, in virtual"
    " time.",
) -> Callable[[F], F]:
    """Return `--history FILE`: where to write history events, which the console can show."""
    return click.option(
        "--history",
        "history_file",
        type=click.Path(dir_okay=False, writable=True),
        callback=_in_a_folder,
        metavar="FILE",
        help=text,
    )


def _in_a_folder(_ctx: click.Context, _param: click.Parameter, path: str | None) -> str | None:
    """Check that the folder exists, before a long run and not after it."""
    if path is not None and not os.path.isdir(os.path.dirname(path) or "."):
        raise click.BadParameter(
            f"folder {os.path.dirname(path)!r} does not exist; create it first"
        )
    return path


def usage_error(message: str) -> click.UsageError:
    """Return an error that points to the help of the current command."""
    return click.UsageError(message, click.get_current_context(silent=True))


def topic_or_partition(text: str) -> tuple[str, int | None]:
    """Return the topic of `orders` or `orders/0`, and the partition. Raises UsageError."""
    topic, slash, number = text.partition("/")
    if not topic or (slash and not number.isdecimal()):
        raise usage_error(f"{text!r} is not in the form TOPIC or TOPIC/PARTITION, such as orders/0")
    return topic, int(number) if slash else None


def one_partition(text: str) -> tuple[str, int]:
    """Return the topic and partition of `orders/0`. Raises UsageError."""
    topic, number = topic_or_partition(text)
    if number is None:
        raise usage_error(f"name one partition, such as {topic}/0")
    return topic, number


def write_file(path: str, text: str) -> None:
    """Write a file. Raises UsageError."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"can't write {path}: {error.strerror}") from error


def write_history(path: str, events: "Iterable[HistoryEvent]") -> None:
    """Write history events to a file, one JSON object per line. Raises UsageError."""
    import json

    write_file(path, "".join(json.dumps(each.as_data(), default=str) + "\n" for each in events))


# -- values that commands parse ---------------------------------------------------------------


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
            raise click.BadParameter(f"{key} is given twice; remove one", param=param)
        found[key] = value
    return found


def read_brokers(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> list[int] | None:
    """Parse `1,2,3`, each id once."""
    return None if text is None else broker_ids(text, ",")


def _read_assignment(
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
        raise click.BadParameter(f"{text!r} lists a broker twice; list each broker once")
    return ids


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


def regex_option() -> Callable[[F], F]:
    """Return `--regex`: names of topics are regular expressions."""
    return click.option(
        "--regex",
        "-r",
        is_flag=True,
        help="TOPIC is a regular expression that matches the whole name.",
    )


def internal_option() -> Callable[[F], F]:
    """Return `--internal`: include internal topics."""
    return click.option(
        "--internal",
        "-i",
        is_flag=True,
        help="Include internal topics, such as __consumer_offsets.",
    )


def assignment_option(which: str) -> Callable[[F], F]:
    """Return `--replica-assignment`: the brokers of each partition."""
    return click.option(
        "--replica-assignment",
        "assignment",
        callback=_read_assignment,
        metavar="1:2,2:3",
        help=f"Replicas of {which}: broker ids separated by colons, partitions by commas.",
    )


def yes_option() -> Callable[[F], F]:
    """Return `--yes`: do not ask for confirmation."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def spark_options(master_help: str) -> Callable[[F], F]:
    """Add `--master` and `--conf`, which set up Spark."""

    def add(command: F) -> F:
        configs = click.option(
            "--conf",
            "settings",
            multiple=True,
            callback=_read_spark_configs,
            metavar="KEY=VALUE",
            help="Set a Spark config; repeatable.",
        )
        master = click.option(
            "--master", default="local[*]", show_default=True, metavar="URL", help=master_help
        )
        return master(configs(command))

    return add


def _read_spark_configs(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Parse `key=value`. The last value of a key applies, as in spark-submit."""
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, _) in zip(texts, pairs, strict=True):
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not in the form KEY=VALUE")
    return {key.strip(): value for key, _, value in pairs}
