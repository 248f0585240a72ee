"""What `tidelog up` does, without the command line around it.

The order is the promise: first everything is looked at (options, folder, settings, ports) and
nothing is touched; then the folder is made, the brokers are started, and when they all see
each other the user hears so. It imports neither click nor rich: both would be paid for before
the first broker starts.
Always true: when `bring_up` returns or raises, no broker that it started runs, unless it was
detached.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.apps.cli.local import up_text
from tidelog.apps.cli.local.up_options import UpOptions
from tidelog.apps.cli.local.up_text import complain
from tidelog.shell.settings_sources import load_settings
from tidelog.shell.supervisor import broker_child, cluster_plan, up_file
from tidelog.shell.supervisor.cluster_plan import HOST, ClusterPlan
from tidelog.shell.supervisor.preflight import data_folder, ports
from tidelog.shell.supervisor.preflight.refusal import Refusal, WrongSetting
from tidelog.shell.supervisor.supervisor import NotStarted, Supervisor, broker_names

DATA = "tidelog-data"
NOT_UP, BAD_USAGE = 1, 2
DIED_OF_SIGNAL = 128


def bring_up(options: UpOptions, began: float) -> int:
    """Start a cluster and see it to its end, or to readiness if detached; the exit code.

    `began`: when the command did, by time.monotonic; what it imports counts too.
    """
    try:
        _open_the_first_three()
        command = _find(options.command)
        prepared = _prepare(options)
        if options.detach:
            from tidelog.apps.cli.local.detached import bring_up_detached

            return bring_up_detached(options, lambda out: _start(options, prepared, [out]), began)
        supervisor = _start(options, prepared)
    except Refusal as refusal:
        complain(str(refusal))
        return BAD_USAGE if isinstance(refusal, WrongSetting) else NOT_UP
    try:
        return _stay(supervisor, options, command, began)
    except OSError as error:
        complain(_reason(error))
        return NOT_UP
    finally:
        end(supervisor, options)


class Prepared(NamedTuple):
    """A plan that was found good."""

    plan: ClusterPlan
    environ: dict[str, str]


def _open_the_first_three() -> None:
    """A stdin or stdout that is closed would be taken for one of our pipes later."""
    while (spare := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(spare, True)
    os.close(spare)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _find(command: Sequence[str]) -> list[str]:
    """The command with its program's path. Raises Refusal before anything is started."""
    if not command:
        return []
    from shutil import which

    program = which(command[0])
    if program is None:
        raise Refusal(f"no program {command[0]!r} to run; it is neither a path nor on PATH")
    return [program, *command[1:]]


def _prepare(options: UpOptions) -> Prepared:
    """Look at everything, touch nothing. Raises Refusal."""
    cluster_plan.check_sets(options.sets)
    data = _temporary() if options.ephemeral else os.path.abspath(options.data or DATA)
    there = [] if options.ephemeral else data_folder.examine(data)
    racks = tuple(rack.strip() for rack in options.racks.split(",") if rack.strip())
    brokers = cluster_plan.broker_ids(options.brokers, there)
    if idle := [broker for broker in there if broker not in brokers]:
        complain(f"not started, though there is data: {broker_names(idle)}")
    plan = ClusterPlan(
        data,
        brokers,
        options.port,
        options.sets,
        racks,
        options.one_process,
    )
    environ, warnings = cluster_plan.without_own(os.environ)
    prepared = Prepared(plan, environ)
    resolved = _settings(prepared, plan.brokers[0], plan.port)
    for warning in (*warnings, *resolved.warnings):
        complain(warning)
    factor = resolved.settings.get("default.replication.factor")
    if factor > len(plan.brokers):
        complain(
            f"default.replication.factor is {factor} and there are"
            f" {up_text.counted(len(plan.brokers), 'broker')}: topics made without a factor"
            " are refused"
        )
    ports.check_free(HOST, [plan.port_of(broker) for broker in plan.brokers])
    return prepared


def _temporary() -> str:
    folder = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(os.path.abspath(folder), f"tidelog-{os.urandom(4).hex()}")


def _settings(prepared: Prepared, broker: int, port: int) -> Any:
    plan = prepared.plan
    try:
        return load_settings(
            None,
            prepared.environ,
            [*plan.sets, *plan.own_settings(broker, port)],
            cluster_plan.defaults(len(plan.brokers)),
        )
    except ValueError as error:
        raise WrongSetting("; ".join(str(error).splitlines())) from error


def _start(options: UpOptions, prepared: Prepared, private: Sequence[int] = ()) -> Supervisor:
    """Make the folder, fork the brokers without the `private` descriptors. Raises Refusal."""
    supervisor = Supervisor(
        prepared.plan,
        lambda broker, port: _settings(prepared, broker, port).settings,
        complain,
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


def _stay(supervisor: Supervisor, options: UpOptions, command: list[str], began: float) -> int:
    try:
        supervisor.wait_until_ready(options.wait)
    except NotStarted as reason:
        complain(str(reason))
        return NOT_UP
    took_s = time.monotonic() - began
    if command:
        return _run_command(supervisor, command, took_s)
    up_text.show(supervisor.up(), took_s, options.form)
    return watch_over(supervisor)


def watch_over(supervisor: Supervisor) -> int:
    """Until somebody asks to stop, or no broker is left."""
    line = up_text.StatusLine(supervisor)
    supervisor.say = line.say
    while not supervisor.signals.received and not supervisor.all_dead():
        line.refresh()
        supervisor.step(line.pause_s)
    line.clear()
    if supervisor.all_dead():
        again = f"tidelog up{up_file.option(supervisor.plan.data)}"
        complain(f"no broker is left; to start the cluster again: {again}")
        return NOT_UP
    up_text.tell(f"stopping {up_text.counted(len(supervisor.listening()), 'broker')} ...")
    if not supervisor.stop():
        complain("not all brokers stopped cleanly; they will recover at the next start")
        return NOT_UP
    up_text.tell("stopped")
    return 0


def _run_command(supervisor: Supervisor, command: list[str], took_s: float) -> int:
    """Run it with the cluster's address; its exit code."""
    import signal
    import subprocess

    brokers = up_text.counted(len(supervisor.plan.brokers), "broker")
    complain(f"{brokers} at {supervisor.bootstrap} after {took_s:.2f} s")
    environ = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": supervisor.bootstrap,
        "TIDELOG_DATA": supervisor.plan.data,
    }
    supervisor.signals.wake_for_children()
    try:
        process = subprocess.Popen(command, env=environ)
    except OSError as error:
        complain(f"can't run {command[0]}: {error.strerror}")
        return NOT_UP
    heeded = 0
    while process.poll() is None:
        supervisor.step(1.0)
        for number in supervisor.signals.received[heeded:]:
            heeded += 1
            if number != signal.SIGINT:  # the terminal sends that to the command too
                process.send_signal(number)
    if not supervisor.stop():
        complain("not all brokers stopped cleanly")
    code = process.returncode
    return code if code >= 0 else DIED_OF_SIGNAL - code


def end(supervisor: Supervisor, options: UpOptions) -> None:
    """Leave no process behind, nor what was only there for this run."""
    supervisor.stop()
    if options.ephemeral:
        from shutil import rmtree

        rmtree(supervisor.plan.data, ignore_errors=True)
    supervisor.signals.restore()  # not before: a second Ctrl-C must not stop the tidying
