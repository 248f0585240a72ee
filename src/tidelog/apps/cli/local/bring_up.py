"""Start a cluster for `tidelog up`, and supervise it until it stops.

First everything is checked (options, folder, configs, ports) without a change; then the folder is
created and the brokers are started; when all see each other, the announcement is printed. It
imports neither click nor rich, which would delay the start of the first broker.
Invariant: when `bring_up` returns or raises, no broker that it started is running, unless with
`--detach`. Then the caller's process ends when the cluster is ready or has failed, and the
supervisor has no terminal and writes to `up.log`.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from tidelog.apps.cli.local import up_text
from tidelog.apps.cli.local.up_options import UpOptions
from tidelog.apps.cli.local.up_text import warn
from tidelog.shell.settings_sources import load_settings
from tidelog.shell.store import cluster_file
from tidelog.shell.store.store_backend import StoreError, is_etcd
from tidelog.shell.supervisor import (
    broker_child,
    cluster_plan,
    data_folder,
    ports,
    throwaway_tls,
    up_file,
)
from tidelog.shell.supervisor.cluster_plan import ClusterPlan, Machine
from tidelog.shell.supervisor.data_folder import Refusal, WrongSetting
from tidelog.shell.supervisor.supervisor import NotStarted, Supervisor, broker_names

if TYPE_CHECKING:
    from tidelog.apps.cli.local.console_child import ConsoleChild

DATA = "tidelog-data"
NOT_UP, BAD_USAGE = 1, 2
DIED_OF_SIGNAL = 128
LOG = "up.log"
"""The log file of a detached supervisor, in the data folder."""
_SWITCHES = ("tidelog.fault.switches=true",)
"""The setting that lets the console isolate a broker."""
Start: TypeAlias = Callable[[int], Supervisor]
"""Starts the brokers, without passing this descriptor on to them."""


def bring_up(options: UpOptions, began: float) -> int:
    """Run a cluster until it stops, or with `--detach` until it is ready; return the exit code.

    `began` is the time.monotonic of the command's start, before its imports.
    """
    try:
        _open_standard_streams()
        command = _find(options.command)
        prepared = _prepare(options)
        if options.detach:
            return _bring_up_detached(options, lambda out: _start(options, prepared, [out]), began)
        supervisor = _start(options, prepared)
    except Refusal as refusal:
        warn(str(refusal))
        return BAD_USAGE if isinstance(refusal, WrongSetting) else NOT_UP
    try:
        return _run_until_stopped(supervisor, options, command, began)
    except OSError as error:
        warn(_reason(error))
        return NOT_UP
    finally:
        end(supervisor, options)


class Prepared(NamedTuple):
    """A checked plan."""

    plan: ClusterPlan
    environ: dict[str, str]


def _open_standard_streams() -> None:
    """Open /dev/null for closed standard streams: else later pipes would get their numbers."""
    while (spare := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(spare, True)
    os.close(spare)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _find(command: Sequence[str]) -> list[str]:
    """Return the command with its program's path. Raises Refusal."""
    if not command:
        return []
    from shutil import which

    program = which(command[0])
    if program is None:
        raise Refusal(f"can't run {command[0]!r}: not found; give a path, or a program on PATH")
    return [program, *command[1:]]


def _prepare(options: UpOptions) -> Prepared:
    """Check options, folder, configs and ports without changing anything. Raises Refusal."""
    if options.console:
        from tidelog.apps.cli.local.console_child import check_installed

        check_installed()
    if options.tls:
        throwaway_tls.check_openssl()
    cluster_plan.check_sets(options.sets)
    sets = tuple(map(cluster_plan.absolute_set, options.sets))
    store = cluster_plan.absolute_store(options.store)
    data = _temporary_folder() if options.ephemeral else os.path.abspath(options.data or DATA)
    noted, disks = _disks(options, data)
    data_folder.check_names(data, disks)
    existing = [] if options.ephemeral else data_folder.examine(data, store)
    racks = tuple(rack.strip() for rack in options.racks.split(",") if rack.strip())
    machine = _machine(options, data)
    brokers = machine.node_ids if machine else cluster_plan.broker_ids(options.brokers, existing)
    if unused := [broker for broker in existing if broker not in brokers]:
        warn(f"not started, although the folder has their data: {broker_names(unused)}")
    plan = ClusterPlan(
        data,
        brokers,
        options.port,
        (*_SWITCHES, *sets) if options.allow_actions else sets,
        racks,
        options.one_process,
        store,
        machine,
        disks,
        options.tls or throwaway_tls.is_made(data),
    )
    if new := disks[len(noted) :]:
        data_folder.examine_disks(data, noted, new, brokers, plan.store)
    environ, warnings = cluster_plan.without_own(os.environ)
    prepared = Prepared(plan, cluster_plan.with_absolute_paths(environ))
    resolved = _settings(prepared, plan.brokers[0], plan.port)
    for warning in (*warnings, *resolved.warnings):
        warn(warning)
    factor = resolved.settings.get("default.replication.factor")
    if is_etcd(plan.store_url):
        from tidelog.shell.supervisor.machine import check_secret

        check_secret(resolved.settings)
    if machine is None and factor > len(plan.brokers):
        warn(
            f"default.replication.factor is {factor}, but there are only"
            f" {up_text.counted(len(plan.brokers), 'broker')}: creating a topic without a"
            " replication factor will fail"
        )
    used = [plan.port_of(broker) for broker in plan.brokers]
    ports.check_free(plan.host, [*used, *map(plan.internal_port_of, plan.brokers)])
    return prepared


def _disks(options: UpOptions, data: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the stored folders of further disks, and these with those of `--log-dir`.

    Raises Refusal.
    """
    try:
        noted = () if options.ephemeral else cluster_file.disks(data)
    except StoreError as error:
        raise Refusal(str(error)) from error
    given = (os.path.abspath(folder) for folder in options.log_dirs)
    return noted, tuple(dict.fromkeys((*noted, *given)))


def _machine(options: UpOptions, data: str) -> Machine | None:
    """This machine as one of several; None: the whole cluster is here. Raises Refusal."""
    noted = os.path.exists(os.path.join(data, data_folder.MACHINE))
    if not noted and not options.machine_named:
        return None
    from tidelog.shell.supervisor import machine

    if options.racks:
        raise WrongSetting(f"{data} is of one of several machines; use --rack instead of --racks")
    ids = machine.parse_ids(options.node_ids)
    given = Machine(options.host, options.rack, ids, options.secret_file)
    store = options.store or data_folder.store_url(data)
    return machine.choose(data, given, options.brokers, store)


def _temporary_folder() -> str:
    folder = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(os.path.abspath(folder), f"tidelog-{os.urandom(4).hex()}")


def _settings(prepared: Prepared, broker: int, port: int) -> Any:
    plan = prepared.plan
    try:
        return load_settings(
            None,
            prepared.environ,
            [*plan.sets, *plan.own_settings(broker, port)],
            plan.defaults(),
        )
    except ValueError as error:
        raise WrongSetting("; ".join(str(error).splitlines())) from error


def _start(options: UpOptions, prepared: Prepared, private: Sequence[int] = ()) -> Supervisor:
    """Create the folder, fork the brokers without the `private` descriptors. Raises Refusal."""
    supervisor = Supervisor(
        prepared.plan,
        lambda broker, port: _settings(prepared, broker, port).settings,
        warn,
        ephemeral=options.ephemeral,
        supervise=options.supervise,
        private=private,
    )
    try:
        supervisor.start(broker_child.ENTRY)
    except OSError as error:
        end(supervisor, options)
        raise Refusal(_reason(error)) from error
    except BaseException:
        end(supervisor, options)
        raise
    return supervisor


def _reason(error: OSError) -> str:
    what = f"{error.filename}: " if error.filename else "can't write the result: "
    return f"{what}{error.strerror}"


def _run_until_stopped(
    supervisor: Supervisor, options: UpOptions, command: list[str], began: float
) -> int:
    try:
        supervisor.wait_until_ready(options.wait)
    except NotStarted as reason:
        warn(str(reason))
        return NOT_UP
    took_s = time.monotonic() - began
    try:
        console = start_console(supervisor, options)
    except Refusal as refusal:
        warn(str(refusal))
        return NOT_UP
    url = None if console is None else console.url
    try:
        if command:
            return _run_command(supervisor, command, took_s, url)
        up_text.show(supervisor.up(), took_s, options.form, console=url)
        return supervise(supervisor)
    finally:
        if console is not None:
            console.close()


def start_console(supervisor: Supervisor, options: UpOptions) -> "ConsoleChild | None":
    """Start the web console if `--console` is given. Raises Refusal."""
    if not options.console:
        return None
    from tidelog.apps.cli.local.console_child import ConsoleChild

    return ConsoleChild(
        supervisor.plan.data, options.console_port, allow_actions=options.allow_actions
    )


def supervise(supervisor: Supervisor) -> int:
    """Supervise until a signal, or until no broker is running; return the exit code."""
    line = up_text.StatusLine(supervisor)
    supervisor.say = line.say
    while not supervisor.signals.received and not supervisor.all_dead():
        line.refresh()
        supervisor.step(line.pause_s)
    line.clear()
    if supervisor.all_dead():
        again = f"tidelog up{up_file.option(supervisor.plan.data)}"
        warn(f"all brokers have ended; to restart the cluster: {again}")
        return NOT_UP
    up_text.note(f"stopping {up_text.counted(len(supervisor.listening()), 'broker')} ...")
    if not supervisor.stop():
        warn("not all brokers stopped cleanly; they will recover at the next startup")
        return NOT_UP
    up_text.note("stopped")
    return 0


def _run_command(
    supervisor: Supervisor, command: list[str], took_s: float, console: str | None
) -> int:
    """Run the command with the cluster's address; return its exit code."""
    import signal
    import subprocess

    brokers = up_text.counted(len(supervisor.plan.brokers), "broker")
    at = f", console at {console}" if console is not None else ""
    warn(f"{brokers} at {supervisor.bootstrap} after {took_s:.2f} s{at}")
    environ = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": supervisor.bootstrap,
        "TIDELOG_DATA": supervisor.plan.data,
    }
    if supervisor.plan.tls:
        environ["TIDELOG_COMMAND_CONFIG"] = throwaway_tls.path(
            supervisor.plan.data, throwaway_tls.CLIENT
        )
    supervisor.signals.wake_for_children()
    try:
        process = subprocess.Popen(command, env=environ)
    except OSError as error:
        warn(f"can't run {command[0]}: {error.strerror}")
        return NOT_UP
    forwarded = 0
    while process.poll() is None:
        supervisor.step(1.0)
        for number in supervisor.signals.received[forwarded:]:
            forwarded += 1
            if number != signal.SIGINT:  # the terminal sends that to the command too
                process.send_signal(number)
    if not supervisor.stop():
        warn("not all brokers stopped cleanly")
    code = process.returncode
    return code if code >= 0 else DIED_OF_SIGNAL - code


def end(supervisor: Supervisor, options: UpOptions) -> None:
    """Stop the brokers, and delete an ephemeral folder."""
    supervisor.stop()
    if options.ephemeral:
        from shutil import rmtree

        rmtree(supervisor.plan.data, ignore_errors=True)
    supervisor.signals.restore()  # last: a second Ctrl-C must not interrupt the cleanup


# -- tidelog up --detach ---------------------------------------------------------------------


def _bring_up_detached(options: UpOptions, start: Start, began: float) -> int:
    """Start the supervisor in a process of its own; return when it is ready or has failed."""
    import json
    import signal

    result, out = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(result)
        _run_supervisor(options, start, out)
    os.close(out)
    try:
        with open(result, encoding="utf-8") as file:
            text = file.read()
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise
    if not text:
        warn("the supervisor died before the cluster was ready")
        return NOT_UP
    report = json.loads(text)
    if "problem" in report:
        warn(report["problem"])
        return NOT_UP
    up = up_file.read(report["data"])
    if up is None:
        warn(f"the cluster in {report['data']} stopped immediately")
        return NOT_UP
    took_s = time.monotonic() - began
    up_text.show(up, took_s, options.form, detached=True, console=report.get("console"))
    return 0


def _run_supervisor(options: UpOptions, start: Start, out: int) -> NoReturn:
    status = NOT_UP
    try:
        os.setsid()
        os.chdir("/")  # do not keep the current folder's disk in use
        status = _start_and_supervise(options, start, out)
    finally:
        os._exit(status)


def _start_and_supervise(options: UpOptions, start: Start, out: int) -> int:
    try:
        supervisor = start(out)
    except Refusal as refusal:
        _report(out, {"problem": str(refusal)})
        return NOT_UP
    data = supervisor.plan.data
    console = None
    try:
        supervisor.wait_until_ready(options.wait)
        console = start_console(supervisor, options)
        _detach_from_terminal(os.path.join(data, LOG))
        _report(out, {"data": data} | ({} if console is None else {"console": console.url}))
        return supervise(supervisor)
    except (NotStarted, Refusal) as reason:
        _report(out, {"problem": str(reason)})
        return NOT_UP
    finally:
        if console is not None:
            console.close()
        end(supervisor, options)


def _report(out: int, report: dict[str, str]) -> None:
    import json

    os.write(out, json.dumps(report).encode())
    os.close(out)


def _detach_from_terminal(log: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for source, target in ((null, 0), (null, 1), (file, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(file)
