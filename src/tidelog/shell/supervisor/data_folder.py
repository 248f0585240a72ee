"""The data folder of a cluster: its files, and checks before a cluster is started in it.

    cluster.db      the metadata store, or
    store-url       the URL of a metadata store that is elsewhere
    tls/            the certificates of `tidelog up --tls`
    machine.json    the address, rack and node ids of one of several machines
    broker-1/ ..    a log directory each, with `meta.properties` and `.lock`
    broker-1.log .. the log of each broker
    up.json         the processes, while the cluster is up
    up.control      a pipe for requests to the supervisor, while the cluster is up

Invariants: checks change nothing. A folder that is not empty and has no cluster is refused, and
so is a folder that a newer version wrote or that is in use.
"""

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from tidelog.core.controller.metadata.history import WAY_OUT
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import CheckpointError, DamagedProperties, parse_properties
from tidelog.shell.store import cluster_file
from tidelog.shell.store.cluster_file import DISKS, disks
from tidelog.shell.store.log_dir_lock import LOCK_NAME, is_free
from tidelog.shell.store.store_backend import StoreError
from tidelog.shell.supervisor import up_file

if TYPE_CHECKING:
    from tidelog.core.settings.broker_settings import BrokerSettings


class Refusal(Exception):
    """A command was refused and changed nothing. Its text is one line that says what to do."""


class WrongSetting(Refusal):
    """The command's options are wrong, not the state of the machine."""


STORE = "cluster.db"
STORE_URL = "store-url"
MACHINE = "machine.json"
TLS = "tls"
BROKER = "broker-"
SPACE_MIN = 8 << 20
"""Free bytes needed. An empty cluster takes less than one MB, but would soon fill the disk."""
IGNORED = {"lost+found", up_file.NAME, "up.control", STORE_URL, DISKS, MACHINE, TLS}


def log_dir(data: str, broker: int) -> str:
    """The path of a broker's log directory."""
    return os.path.join(data, f"{BROKER}{broker}")


def log_dirs(data: str, broker: int, disks: Sequence[str]) -> list[str]:
    """The paths of all log directories of a broker: in the data folder, and on further disks."""
    return [log_dir(folder, broker) for folder in (data, *disks)]


def check_names(data: str, disks: Sequence[str]) -> None:
    """Raise WrongSetting if a folder's name can't be stored in the list of disks or in
    `log.dirs`."""
    for option, folder in (("--data", data), *(("--log-dir", disk) for disk in disks)):
        if "," in folder:
            why = "has a comma, which separates the folders in log.dirs"
        elif option == "--log-dir" and folder.splitlines() != [folder.strip()]:
            why = "ends with a blank, or has a line end"
        elif not folder.isascii() and not _is_utf8(folder):
            why = "is not UTF-8"
        else:
            continue
        raise WrongSetting(f"{option} {folder!r} {why}; choose another folder")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def note_disks(data: str, folders: Sequence[str]) -> None:
    """Store the folders of further disks for the next start: a broker that starts without one of
    its log directories counts the logs in it as lost."""
    if tuple(folders) != disks(data):
        _replace(os.path.join(data, DISKS), "".join(f"{folder}\n" for folder in folders))


def log_file(data: str, broker: int | None) -> str:
    """The path of a broker's log file; None: of all brokers in one process."""
    return os.path.join(data, "brokers.log" if broker is None else f"{BROKER}{broker}.log")


def store_url(data: str) -> str:
    """The URL of the folder's metadata store: its own file, unless another one is noted there."""
    try:
        with open(os.path.join(data, STORE_URL), encoding="utf-8") as file:
            noted = file.readline().strip()
    except (OSError, UnicodeDecodeError):
        noted = ""
    return noted or f"sqlite:{os.path.join(data, STORE)}"


def note_store(data: str, url: str) -> None:
    """Note the store of the folder's brokers, for the next start; empty: the folder's own file."""
    path = os.path.join(data, STORE_URL)
    if not url:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    _replace(path, f"{url}\n")


def _replace(path: str, text: str) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def examine(data: str, store: str = "") -> list[int]:
    """Check the folder; return the ids of the brokers with data in it. Raises Refusal.

    `store`: the URL of a metadata store outside the folder.
    """
    if not os.path.lexists(data):
        _check_place(os.path.dirname(data) or ".")
        return []
    if not os.path.isdir(data):
        raise Refusal(f"{data} is not a folder; choose another with --data")
    try:
        names = os.listdir(data)
    except OSError as error:
        raise Refusal(f"can't read {data}: {error.strerror}") from error
    _check_place(data)
    up = up_file.read(data)
    if up is not None and up.alive():
        raise Refusal(
            f"{data} is in use: a cluster is up there (pid {up.pid});"
            f" stop it with: tidelog down{up_file.option(data)}"
        )
    brokers = broker_ids(data)
    _check_ours(data, names, brokers, store)
    for broker in brokers:
        _check_broker(log_dir(data, broker))
    return brokers


def examine_disks(
    data: str, known: Sequence[str], new: Sequence[str], brokers: Sequence[int], store: str
) -> None:
    """Check folders of further disks before they are noted: the next start would use them too.

    A noted disk may have failed; its broker serves without it. Raises Refusal.
    """
    cluster = cluster_of(data)
    begins = cluster is None and not store and not os.path.exists(os.path.join(data, STORE))
    places = {os.path.realpath(folder) for folder in (data, *known)}
    for folder in new:
        if os.path.realpath(folder) in places:
            raise Refusal(f"--log-dir {folder} is in use already; name a folder on another disk")
        places.add(os.path.realpath(folder))
        _check_disk(folder)
        for broker in brokers:
            path = log_dir(folder, broker)
            _check_broker(path)
            found = _cluster_in(path)
            if found is not None and (begins or cluster not in (None, found)):
                raise Refusal(
                    f"{path} has data of another cluster ({found}); choose another folder with"
                    " --log-dir"
                )


def _check_disk(folder: str) -> None:
    place = folder
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    why = "is not a folder" if not os.path.isdir(place) else ""
    if not why and not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        why = "can't be written: no permission"
    if why:
        raise Refusal(f"--log-dir {folder}: {place} {why}; choose another folder")


def broker_ids(data: str) -> list[int]:
    """The brokers with a log directory in the data folder, which may be missing."""
    names = os.listdir(data) if os.path.isdir(data) else []
    found = [b for b in map(broker_id, names) if b is not None]
    return sorted(b for b in found if os.path.isdir(log_dir(data, b)))


def broker_id(name: str) -> int | None:
    """The broker whose log directory has this name; None for other names."""
    number = name.removeprefix(BROKER)
    return int(number) if number != name and number.isascii() and number.isdecimal() else None


def _check_place(folder: str) -> None:
    """Check that the nearest existing folder is writable and has free space."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise Refusal(f"no permission to write in {folder}; choose another folder with --data")
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        raise Refusal(f"{folder} is on a read-only file system; choose another folder with --data")
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < SPACE_MIN:  # /proc has no blocks
        raise Refusal(
            f"the disk of {folder} is full (less than {SPACE_MIN >> 20} MB left);"
            " make room, or choose another folder with --data"
        )


def _check_ours(data: str, names: list[str], brokers: list[int], store: str) -> None:
    if STORE in names and store:
        raise Refusal(
            f"{data} has its metadata in {STORE}; to move it, run: tidelog store copy {data}"
            f" {store}; then start without --store"
        )
    if STORE in names:
        try:
            cluster_file.check(os.path.join(data, STORE))
        except StoreError as error:
            raise Refusal(str(error)) from error
        except OSError as error:
            raise Refusal(f"can't read {os.path.join(data, STORE)}: {error.strerror}") from error
        return
    if brokers and not store and STORE_URL not in names:
        raise Refusal(
            f"{data} has brokers' data but no {STORE}, the metadata store; {WAY_OUT}; or choose"
            " another folder with --data"
        )
    strange = [name for name in names if name not in IGNORED and not name.endswith(".log")]
    if strange and not brokers:
        raise Refusal(
            f"{data} is not a Tidelog data folder (it contains {min(strange)});"
            " choose an empty one with --data"
        )


def _check_broker(folder: str) -> None:
    path = os.path.join(folder, layout.META_PROPERTIES)
    try:
        with open(path, "rb") as file:
            parse_properties(path, file.read())
    except (FileNotFoundError, DamagedProperties):
        pass  # the broker writes the file
    except CheckpointError as error:
        raise Refusal(
            f"{error}; use the Tidelog that wrote it, or choose another folder with --data"
        ) from error
    except OSError as error:
        raise Refusal(f"can't read {path}: {error.strerror}") from error
    lock = os.path.join(folder, LOCK_NAME)
    if os.path.exists(lock) and not is_free(lock):
        raise Refusal(f"{folder} is locked by {_locker(lock)}; stop that process first")


def _locker(lock: str) -> str:
    pid = lock_holder(lock)
    return "another process" if pid is None else f"pid {pid}"


def lock_holder(lock: str) -> int | None:
    """The pid in a lock file; None if it has none."""
    try:
        with open(lock, encoding="ascii", errors="replace") as file:
            pid = file.read(20).split()[:1]
    except OSError:
        return None
    return int(pid[0]) if pid and pid[0].isdecimal() else None


def claim(data: str) -> int:
    """Create the folder if it is missing and lock it; return the lock's descriptor.

    The lock is on the folder itself, so that it leaves no file and ends with the process.
    Raises Refusal.
    """
    try:
        os.makedirs(data, mode=0o700, exist_ok=True)
        folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Refusal(f"can't create {data}: {error.strerror}; choose another --data") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise Refusal(f"{data} is in use: another tidelog up is starting there") from None
    return folder


class StorePreparation:
    """Creates the store, if it is missing, in a thread, because that waits for the disk.

    The thread must be joined before a fork.
    """

    def __init__(
        self,
        data: str,
        url: str,
        settings: Callable[[], "BrokerSettings"],
        then: Callable[["BrokerSettings"], None] = lambda _: None,
    ) -> None:
        """`settings`: of any broker, for a store outside the folder; `then` is called with them."""
        self._then = then
        self._data = data
        self._url = url
        self._settings = settings
        self._problem = ""
        self._thread = Thread(target=self._prepare)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread. Raises Refusal if the store could not be created."""
        self._thread.join()
        if self._problem:
            raise Refusal(self._problem)

    def _prepare(self) -> None:
        try:
            if self._url == f"sqlite:{os.path.join(self._data, STORE)}":
                cluster_file.prepare(self._url.removeprefix("sqlite:"))
                return
            from tidelog.shell.store.open_store import store_of

            settings = self._settings()
            store_of(settings).prepare(cluster_of(self._data))
            self._then(settings)
            note_store(self._data, self._url)
        except Refusal as refusal:
            self._problem = str(refusal)
        except StoreError as error:
            self._problem = str(error)
        except OSError as error:
            self._problem = f"can't write {os.path.join(self._data, STORE_URL)}: {error.strerror}"


def cluster_of(data: str) -> str | None:
    """The cluster whose data the folder has; None if it has none."""
    found = (_cluster_in(log_dir(data, broker)) for broker in broker_ids(data))
    return next((one for one in found if one is not None), None)


def _cluster_in(folder: str) -> str | None:
    path = os.path.join(folder, layout.META_PROPERTIES)
    with suppress(OSError, CheckpointError, KeyError), open(path, "rb") as file:
        return parse_properties(path, file.read()).values["cluster.id"]
    return None
