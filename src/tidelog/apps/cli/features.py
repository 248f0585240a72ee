"""`tidelog features`: the feature levels of a cluster, under the names of `kafka-features.sh`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import cluster_options, connected_cluster
from tidelog.apps.cli.usage import F, Section, examples, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.client.administration.features import FeatureLevels

LEVEL_MAX = 32767


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog features describe",
        "tidelog features upgrade --feature tidelog.version=2",
        "tidelog features downgrade --feature tidelog.version=1 --dry-run",
    ),
)
def features() -> None:
    """Show and change feature levels, such as after a rolling upgrade."""


def _feature_option(text: str, form: str) -> Callable[[F], F]:
    return click.option(
        "--feature", "wanted", multiple=True, required=True, metavar=form, help=text
    )


def _dry_run_option() -> Callable[[F], F]:
    return click.option("--dry-run", is_flag=True, help="Check the change, but do not make it.")


def _unsafe_option() -> Callable[[F], F]:
    return click.option("--unsafe", is_flag=True, help="Allow the change to delete metadata.")


@features.command("describe", epilog=examples("tidelog features describe"))
@cluster_options()
def describe_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Show the supported levels and the finalised level of each feature."""
    from tidelog.shell.client.administration.features import describe_features

    with connected_cluster(bootstrap, timeout_s) as connected:
        found = describe_features(connected)
    data = {"epoch": found.epoch, "features": [each._asdict() for each in found.features]}
    return output.conclude(form, True, data, lambda screen: _show(screen, found))


@features.command(
    "upgrade", epilog=examples("tidelog features upgrade --feature tidelog.version=2")
)
@_feature_option("Feature and new level; repeatable.", "NAME=LEVEL")
@_dry_run_option()
@cluster_options()
def upgrade_command(
    wanted: tuple[str, ...], dry_run: bool, bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """Raise the level of features, all or none.

    Every registered broker must run software that supports the level. Brokers of older software
    can't join the cluster after that.
    """
    from tidelog.shell.client.administration.features import UPGRADE

    return _update(_levels(wanted), UPGRADE, dry_run, bootstrap, timeout_s, form)


@features.command(
    "downgrade", epilog=examples("tidelog features downgrade --feature tidelog.version=1")
)
@_feature_option("Feature and new level; repeatable.", "NAME=LEVEL")
@_unsafe_option()
@_dry_run_option()
@cluster_options()
def downgrade_command(
    wanted: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Lower the level of features, all or none, such as before a return to older software."""
    levels = _levels(wanted)
    return _update(levels, _downward(unsafe), dry_run, bootstrap, timeout_s, form)


@features.command("disable", epilog=examples("tidelog features disable --feature group.version"))
@_feature_option("Feature to disable; repeatable.", "NAME")
@_unsafe_option()
@_dry_run_option()
@cluster_options()
def disable_command(
    wanted: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Lower features to level 0, all or none."""
    levels = dict.fromkeys(wanted, 0)
    return _update(levels, _downward(unsafe), dry_run, bootstrap, timeout_s, form)


def _downward(unsafe: bool) -> int:
    from tidelog.shell.client.administration import features as client

    return client.UNSAFE_DOWNGRADE if unsafe else client.SAFE_DOWNGRADE


def _levels(wanted: tuple[str, ...]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for each in wanted:
        name, _, level = each.partition("=")
        if not name or not level.isascii() or not level.isdigit() or int(level) > LEVEL_MAX:
            raise usage_error(f"--feature {each!r} is not NAME=LEVEL, such as tidelog.version=2")
        if name in levels:
            raise usage_error(f"--feature {name} is given more than once")
        levels[name] = int(level)
    return levels


def _update(
    levels: dict[str, int],
    direction: int,
    dry_run: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.shell.client.administration.features import update_features

    with connected_cluster(bootstrap, timeout_s) as connected:
        outcome = update_features(connected, levels, direction, validate_only=dry_run)
    text = ", ".join(f"{name} to {level}" for name, level in levels.items())
    if outcome.holds:
        change = done(outcome.name, f"{'can change' if dry_run else 'changed'} {text}")
    else:
        change = rejected(f"changing {text}", outcome)
    return output.conclude_changes(form, "features", [change])


def _show(screen: "Console", found: "FeatureLevels") -> None:
    numbers = ("lowest supported", "highest supported", "finalised")
    table = output.table(("feature", *numbers), numbers=numbers)
    for each in found.features:
        table.add_row(each.name, str(each.lowest), str(each.highest), str(each.level))
    output.show_table(screen, table)
    screen.print(f"epoch of the last change: {found.epoch}")
