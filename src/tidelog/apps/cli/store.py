"""`tidelog store`: show, back up, copy, restore and rebuild a cluster's metadata store.

Invariants: no secret is printed; only `copy`, `restore` and `rebuild` change the store, and they
do so only while its brokers are down.
"""

import os
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import Section, examples, format_option, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.core.controller.metadata.metadata_store import KV
    from tidelog.shell.store.rebuild_store import Outcome
    from tidelog.shell.store.store_backend import StoreAccess
    from tidelog.shell.store.store_contents import StoreContents

FILE_NAME = "cluster.db"
"""The store's file in a data folder."""
SHOWN_MAX = 100
"""Characters of a value that a table shows."""
HIDDEN = "(hidden)"


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog store show tidelog-data",
        "tidelog store backup tidelog-data cluster-backup.db",
        "tidelog store copy tidelog-data etcds://h1,h2,h3/tidelog",
        "tidelog store rebuild tidelog-data --plan",
    ),
)
def store() -> None:
    """Show, back up, copy, restore or rebuild the metadata store of a cluster.

    A PATH is a data folder of `tidelog up`, the file of a store on SQLite, or a URL of etcd. The
    user and the TLS files for etcd come from the settings tidelog.metadata.store.* in --config, or
    from the environment.
    """


_config_option = click.option(
    "--config",
    metavar="FILE",
    help="Read the settings tidelog.metadata.store.* from FILE, to log in to etcd.",
)


@store.command(
    "show",
    epilog=examples(
        "tidelog store show tidelog-data",
        "tidelog store show tidelog-data/cluster.db --prefix topics/",
        "tidelog store show tidelog-data --format json",
    ),
)
@click.argument("path")
@click.option("--prefix", default="", help="Show only keys with this prefix.")
@_config_option
@format_option()
def show_command(path: str, prefix: str, config: str | None, form: str) -> int:
    """List the keys and sessions of a metadata store.

    PATH is a data folder of `tidelog up`, the store's file, or a URL of etcd. Brokers may be
    running. Values that hold secrets are left out.
    """
    from tidelog.apps.cli import output
    from tidelog.shell.store.store_backend import StoreError, is_etcd

    place = _place(path)
    try:
        if is_etcd(place):
            from tidelog.shell.store.etcd import store_admin

            contents = store_admin.read_contents(place, _access(config))
        else:
            from tidelog.shell.store.store_contents import read_contents

            contents = read_contents(place)
    except StoreError as error:
        _refuse(error)
    kept = tuple(kv for kv in contents.kvs if kv.key.startswith(prefix))
    contents = contents._replace(kvs=kept)
    return output.conclude(form, True, _as_data(contents), lambda screen: _show(screen, contents))


@store.command("backup", epilog=examples("tidelog store backup tidelog-data cluster-backup.db"))
@click.argument("path")
@click.argument("target")
@_config_option
@format_option()
def backup_command(path: str, target: str, config: str | None, form: str) -> int:
    """Copy a metadata store to a new file, even while brokers use it.

    PATH is a data folder of `tidelog up`, the store's file, or a URL of etcd. TARGET must not exist
    yet. The copy is a consistent snapshot, as a store on SQLite.
    """
    from tidelog.shell.store.cluster_file import backup
    from tidelog.shell.store.store_backend import StoreError, is_etcd
    from tidelog.shell.store.store_contents import read_contents

    place = _place(path)
    try:
        if is_etcd(place):
            from tidelog.shell.store.etcd import store_admin

            store_admin.backup(place, target, _access(config))
        else:
            backup(place, target)
        rev = read_contents(target).rev
    except StoreError as error:
        _refuse(error)
    size = os.path.getsize(target)
    data = {"target": target, "revision": rev, "bytes": size}
    line = output.verdict_line(True, f"{target} holds the store at revision {rev}, {size} bytes")
    return output.conclude(form, True, data, lambda screen: screen.print(line))


@store.command(
    "copy",
    epilog=examples(
        "tidelog store copy tidelog-data etcd://127.0.0.1:2379/tidelog",
        "tidelog store copy etcds://h1,h2,h3/tidelog tidelog-data",
    ),
)
@click.argument("source")
@click.argument("target")
@_config_option
@format_option()
def copy_command(source: str, target: str, config: str | None, form: str) -> int:
    """Move a stopped cluster's metadata to another store.

    SOURCE and TARGET are data folders of `tidelog up`, files of stores, or URLs of etcd. All
    brokers must be down. TARGET must not hold a store. SOURCE is marked as moved: no broker
    starts on it any more. A data folder notes its new store for the next `tidelog up`.
    """
    from tidelog.apps.cli import output
    from tidelog.shell.store.store_backend import StoreError, is_etcd
    from tidelog.shell.store.store_copy import copy_store
    from tidelog.shell.supervisor.data_folder import note_store

    goal = os.path.join(target, FILE_NAME) if os.path.isdir(target) else target
    goal = goal.removeprefix("sqlite:")
    try:
        done = copy_store(_place(source), goal, _access(config))
        for folder in (source, target):
            if os.path.isdir(folder):
                note_store(folder, goal if is_etcd(goal) else "")
    except StoreError as error:
        _refuse(error)
    except OSError as error:
        _refuse(click.ClickException(f"{error.filename}: {error.strerror}"))
    data = {
        "source": source,
        "target": goal,
        "cluster_id": done.cluster_id,
        "keys": done.keys,
        "revision": done.revision,
        "kept": done.kept,
    }

    def show(screen: "Console") -> None:
        for kept in done.kept:
            screen.print(output.faint(f"kept, and marked as moved: {kept}"))
        text = f"{goal} holds {done.keys} keys of cluster {done.cluster_id}"
        screen.print(output.verdict_line(True, text))
        place = goal if is_etcd(goal) else f"sqlite:{os.path.abspath(goal)}"
        screen.print(f"set tidelog.metadata.store={place} in all brokers", markup=False)

    return output.conclude(form, True, data, show)


_log_dirs = click.option(
    "--log-dir",
    "log_dirs",
    multiple=True,
    metavar="DIR",
    help="A broker's log directory; repeat for each broker.  [default: broker-* beside the store]",
)
_lost_brokers = click.option(
    "--lost-broker",
    "lost",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="ID",
    help="For etcd: a broker that was removed or whose log directory is lost; repeatable. Records"
    " that only it has are lost.",
)
_no_other_brokers = click.option(
    "--no-other-brokers",
    "no_others",
    is_flag=True,
    help="For etcd: say that these are the log directories of all brokers, if neither the store nor"
    " the directories tell which brokers exist.",
)
_plan_only = click.option("--plan", is_flag=True, help="Show what would be written; write nothing.")


@store.command(
    "restore",
    epilog=examples(
        "tidelog store restore cluster-backup.db tidelog-data --plan",
        "tidelog store restore cluster-backup.db tidelog-data",
    ),
)
@click.argument("backup")
@click.argument("path")
@_log_dirs
@_lost_brokers
@_no_other_brokers
@_plan_only
@_config_option
@format_option()
def restore_command(
    backup: str,
    path: str,
    log_dirs: tuple[str, ...],
    lost: tuple[int, ...],
    no_others: bool,
    plan: bool,
    config: str | None,
    form: str,
) -> int:
    """Restore a backup of the metadata store, updated from the brokers' folders.

    BACKUP is a file that `tidelog store backup` wrote. PATH is a data folder of `tidelog up`, the
    store's file, or a URL of etcd. All brokers must be down. Topics created since the backup are
    added, and each partition's leader is chosen from the replicas' logs, so no acknowledged record
    is lost. The old files are kept under other names.

    Brokers on several machines: copy or mount their log directories, and name all with --log-dir.
    """
    return _replace(path, log_dirs, lost, no_others, backup, plan, config, form)


@store.command(
    "rebuild",
    epilog=examples(
        "tidelog store rebuild tidelog-data --plan",
        "tidelog store rebuild tidelog-data",
        "tidelog store rebuild cluster.db --log-dir /disk1/log --log-dir /disk2/log",
    ),
)
@click.argument("path")
@_log_dirs
@_lost_brokers
@_no_other_brokers
@_plan_only
@_config_option
@format_option()
def rebuild_command(
    path: str,
    log_dirs: tuple[str, ...],
    lost: tuple[int, ...],
    no_others: bool,
    plan: bool,
    config: str | None,
    form: str,
) -> int:
    """Rebuild the metadata store from the brokers' folders.

    PATH is a data folder of `tidelog up`, the store's file, or a URL of etcd. All brokers must be
    down. The old store is used as far as it can be read, and kept under another name.

    Brokers on several machines: copy or mount their log directories, and name all with --log-dir.
    """
    return _replace(path, log_dirs, lost, no_others, None, plan, config, form)


def _replace(
    path: str,
    log_dirs: tuple[str, ...],
    lost: tuple[int, ...],
    no_others: bool,
    backup: str | None,
    plan: bool,
    config: str | None,
    form: str,
) -> int:
    from tidelog.apps.cli import output
    from tidelog.shell.store.rebuild_store import log_directories, replace_store
    from tidelog.shell.store.store_backend import StoreError
    from tidelog.shell.supervisor.data_folder import MACHINE

    place, folders = _place(path), list(log_dirs)
    try:
        if not folders and os.path.isdir(path):
            if os.path.exists(os.path.join(path, MACHINE)):
                raise StoreError(
                    f"{path} has the brokers of one machine only; copy or mount the log directories"
                    " of all machines, and name each with --log-dir"
                )
            folders = log_directories(os.path.join(path, FILE_NAME))
        access = _access(config)
        outcome = replace_store(
            place, folders, backup, plan=plan, access=access, lost=lost, no_others=no_others
        )
    except StoreError as error:
        _refuse(error)
    return output.conclude(
        form,
        True,
        _outcome_data(outcome, plan),
        lambda screen: _show_outcome(screen, outcome, plan),
    )


def _outcome_data(outcome: "Outcome", plan: bool) -> dict[str, Any]:
    return {
        "store": outcome.store,
        "cluster_id": outcome.cluster_id,
        "revision": outcome.rebuilt.revision,
        "written": not plan,
        "brokers": [one.broker.broker for one in outcome.directories],
        "partitions": [
            {
                "topic": made.partition.topic,
                "partition": made.partition.partition,
                "topic_id": made.registration.topic_id.hex(),
                "replicas": list(made.registration.replicas),
                "isr": list(made.registration.isr),
                "leader_epoch": made.registration.leader_epoch,
                "log_end_offset": made.log_end_offset,
            }
            for made in outcome.rebuilt.partitions
        ],
        "remarks": outcome.remarks,
        "moved": outcome.moved,
    }


def _show_outcome(screen: "Console", outcome: "Outcome", plan: bool) -> None:

    columns = ("partition", "replicas", "in sync", "leader epoch", "log end")
    rows = output.table(columns, numbers=("leader epoch", "log end"))
    for made in outcome.rebuilt.partitions:
        registration = made.registration
        rows.add_row(
            str(made.partition),
            ", ".join(map(str, registration.replicas)),
            ", ".join(map(str, registration.isr)),
            str(registration.leader_epoch),
            str(made.log_end_offset),
        )
    output.show_table(screen, rows)
    for remark in outcome.remarks:
        screen.print(f"note: {remark}", markup=False, highlight=False, soft_wrap=True)
    for old in outcome.moved:
        screen.print(output.faint(f"kept: {old}"))
    topics = len({made.registration.topic_id for made in outcome.rebuilt.partitions})
    what = f"{topics} topics, {len(outcome.rebuilt.partitions)} partitions"
    verb = "would hold" if plan else "holds"
    line = f"{outcome.store} {verb} {what} at revision {outcome.rebuilt.revision}"
    screen.print(output.verdict_line(True, line))


def _place(path: str) -> str:
    """The file or the URL of the store that a data folder, a file or a URL names."""
    if os.path.isdir(path):
        from tidelog.shell.supervisor.data_folder import store_url

        path = store_url(path)
    return path.removeprefix("sqlite:")


def _access(config: str | None) -> "StoreAccess":
    from tidelog.shell.settings_sources import load_settings
    from tidelog.shell.store.open_store import access_of

    try:
        resolved = load_settings(config, os.environ, (), {"node.id": "1"})
    except ValueError as error:
        _refuse(error)
    return access_of(resolved.settings)


def _refuse(error: Exception) -> NoReturn:
    raise usage_error(str(error)) from error


def _as_data(contents: "StoreContents") -> dict[str, Any]:
    return {
        "format": contents.format,
        "revision": contents.rev,
        "compacted": contents.compacted,
        "keys": [
            {
                "key": kv.key,
                "value": _value(kv),
                "create_revision": kv.create_rev,
                "mod_revision": kv.mod_rev,
                "session": kv.session or None,
            }
            for kv in contents.kvs
        ],
        "sessions": [state._asdict() for state in contents.sessions],
    }


def _value(kv: "KV") -> str | None:
    """Return the value as text, with escapes for invalid UTF-8; None if it is secret."""
    from tidelog.shell.store.store_contents import is_secret

    return None if is_secret(kv.key) else kv.value.decode("utf-8", "backslashreplace")


def _show(screen: "Console", contents: "StoreContents") -> None:

    keys = output.table(
        ("key", "value", "created", "changed", "session"), numbers=("created", "changed")
    )
    for kv in contents.kvs:
        value = _value(kv)
        text = HIDDEN if value is None else value[:SHOWN_MAX]
        more = "…" if value is not None and len(value) > SHOWN_MAX else ""
        keys.add_row(
            kv.key, text + more, str(kv.create_rev), str(kv.mod_rev), str(kv.session or "")
        )
    output.show_table(screen, keys)
    if contents.sessions:
        sessions = output.table(("session", "TTL ms", "left ms", "lock", "broker"))
        for state in contents.sessions:
            sessions.add_row(
                str(state.session),
                str(state.ttl_ms),
                str(state.left_ms),
                state.lock,
                output.mark(not state.proved_dead, "not proved dead", "dead"),
            )
        output.show_table(screen, sessions)
    watches = "" if contents.compacted is None else f"; watches can start at {contents.compacted}"
    screen.print(output.faint(f"revision {contents.rev}{watches}"))
