"""What all commands share: groups, error messages, examples, options.

Invariants: an error is one line on stderr that says what to do next; invalid usage exits with 2.
Nothing here imports the lab, so that `--help` is fast; values are validated only if given.
"""

import os
import sys
from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click

from tidelog.apps.near_names import near

F = TypeVar("F", bound=Callable[..., object])

BAD_USAGE = 2
INTERRUPTED = 130
SENTENCE_MAX = 200
POLICY_NAMES = "leader-epoch (shipped), high-watermark, kip-101 or kip-279"


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

    if name is not None and name not in POLICIES:
        raise click.BadParameter(f"unknown policy {name!r}; {near(name, POLICIES)}")
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
        metavar="POLICY",
        help=f"{text}: {POLICY_NAMES}.",
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


def _in_a_folder(_ctx: click.Context, _param: click.Parameter, path: str | None) -> str | None:
    """Check the folder before the long work, not after it."""
    if path is not None and not os.path.isdir(os.path.dirname(path) or "."):
        raise click.BadParameter(
            f"folder {os.path.dirname(path)!r} does not exist; create it first"
        )
    return path


def write_file(path: str, text: str) -> None:
    """Write a file. Raises UsageError."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"can't write {path}: {error.strerror}") from error
