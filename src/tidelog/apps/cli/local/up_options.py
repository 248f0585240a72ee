"""The options of `tidelog up`: one table for click and for a fast parser.

Importing click takes as long as starting a broker. So a plain command line is parsed here;
everything else (help, a typo, an invalid value) is left to click and its messages.
Invariant: click accepts what the fast parser accepts, with the same meaning.
"""

from typing import Any, NamedTuple

FLAG, NUMBER, SECONDS, TEXT, MANY, CHOICE = "flag", "number", "seconds", "text", "many", "choice"


class Option(NamedTuple):
    """One option: its name, field, kind and help."""

    written: str
    field: str
    kind: str
    default: Any
    help: str
    metavar: str | None = None
    bounds: tuple[int, int] = (0, 0)
    choices: tuple[str, ...] = ()
    shown: bool = False
    """Whether the help shows the default."""


class UpOptions(NamedTuple):
    """The parsed command line."""

    brokers: int | None = None
    port: int = 9092
    data: str | None = None
    ephemeral: bool = False
    one_process: bool = False
    detach: bool = False
    supervise: bool = False
    sets: tuple[str, ...] = ()
    racks: str = ""
    wait: float = 30.0
    form: str = "text"
    command: tuple[str, ...] = ()
    store: str = ""
    host: str = ""
    rack: str = ""
    node_ids: str = ""
    secret_file: str = ""
    log_dirs: tuple[str, ...] = ()
    tls: bool = False
    console: bool = False
    console_port: int | None = None
    allow_actions: bool = False

    @property
    def machine_named(self) -> bool:
        """Whether an option describes this machine as one of several."""
        return bool(self.host or self.rack or self.node_ids or self.secret_file)

    def conflict(self) -> str | None:
        """Return an error message if options conflict."""
        if self.ephemeral and self.data:
            return "--ephemeral and --data can't be combined"
        if self.ephemeral and self.log_dirs:
            return "--ephemeral deletes its folder only, and can't be combined with --log-dir"
        if self.tls and self.machine_named:
            return (
                "--tls makes certificates for a cluster on one machine; on several machines, set"
                " ssl.keystore.location and ssl.truststore.location with --set"
            )
        if self.racks and self.machine_named:
            return (
                "--racks is for a cluster on one machine, and can't be combined with --host,"
                " --rack, --node-ids and --secret-file; one of several machines has one --rack"
            )
        if self.command and (self.detach or self.form == "json"):
            return "--detach and --format json can't be combined with a COMMAND"
        if not self.console and (self.console_port is not None or self.allow_actions):
            return "--console-port and --allow-actions need --console"
        return None


_DEFAULTS = UpOptions()

OPTIONS = (
    Option(
        "--brokers",
        "brokers",
        NUMBER,
        _DEFAULTS.brokers,
        "Number of brokers.  [default: those with data in the folder, else 3]",
        bounds=(1, 100),
    ),
    Option(
        "--port",
        "port",
        NUMBER,
        _DEFAULTS.port,
        "Port of the first broker; the others use the next ports. 0 chooses free ports.",
        bounds=(0, 65535),
        shown=True,
    ),
    Option(
        "--data",
        "data",
        TEXT,
        _DEFAULTS.data,
        "Folder of the data.  [default: ./tidelog-data]",
        metavar="DIR",
    ),
    Option(
        "--log-dir",
        "log_dirs",
        MANY,
        (),
        "Folder on a further disk: each broker also stores partitions in DIR/broker-<id>. Later"
        " starts use it too; repeatable.",
        metavar="DIR",
    ),
    Option(
        "--tls",
        "tls",
        FLAG,
        False,
        "Clients use TLS: makes an authority and a certificate in the data folder, and prints what"
        " a client needs. Later starts use them too.",
    ),
    Option(
        "--store",
        "store",
        TEXT,
        _DEFAULTS.store,
        "Metadata store outside the folder; noted there for the next start.  [default: the"
        " folder's own]",
        metavar="URL",
    ),
    Option(
        "--host",
        "host",
        TEXT,
        _DEFAULTS.host,
        "Address of this machine, one of several of a cluster; needs --store and --node-ids. The"
        " folder notes it, as it does --rack, --node-ids and --secret-file.",
        metavar="ADDRESS",
    ),
    Option(
        "--rack",
        "rack",
        TEXT,
        _DEFAULTS.rack,
        "Rack of this machine's brokers.  [default: ADDRESS of --host]",
        metavar="A",
    ),
    Option(
        "--node-ids",
        "node_ids",
        TEXT,
        _DEFAULTS.node_ids,
        "Ids of this machine's brokers, different from those of all other machines.",
        metavar="11,12,..",
    ),
    Option(
        "--secret-file",
        "secret_file",
        TEXT,
        _DEFAULTS.secret_file,
        "File with the cluster's secret, the same on all machines.  [default: the metadata store"
        " contains it]",
        metavar="FILE",
    ),
    Option(
        "--ephemeral", "ephemeral", FLAG, False, "Use a temporary folder, and delete it at the end."
    ),
    Option(
        "--one-process",
        "one_process",
        FLAG,
        False,
        "Run all brokers in one process, to save memory.",
    ),
    Option(
        "--detach",
        "detach",
        FLAG,
        False,
        "Run in the background; return when the cluster is ready.",
    ),
    Option(
        "--console",
        "console",
        FLAG,
        False,
        "Also serve the web console, and print its URL.",
    ),
    Option(
        "--console-port",
        "console_port",
        NUMBER,
        _DEFAULTS.console_port,
        "Port of the console.  [default: 8080, or a free one if that is in use]",
        bounds=(1, 65535),
    ),
    Option(
        "--allow-actions",
        "allow_actions",
        FLAG,
        False,
        "Allow the console's pages to change the cluster, and to kill, pause and isolate brokers;"
        " sets tidelog.fault.switches=true.",
    ),
    Option("--supervise", "supervise", FLAG, False, "Restart brokers that die."),
    Option(
        "--set", "sets", MANY, (), "Set a config of all brokers; repeatable.", metavar="KEY=VALUE"
    ),
    Option(
        "--racks", "racks", TEXT, "", "Racks, assigned to the brokers in turn.", metavar="A,B,.."
    ),
    Option(
        "--wait",
        "wait",
        SECONDS,
        _DEFAULTS.wait,
        "How long to wait until the cluster is ready.",
        metavar="SECONDS",
        shown=True,
    ),
    Option(
        "--format",
        "form",
        CHOICE,
        _DEFAULTS.form,
        "Output format.",
        choices=("text", "json"),
        shown=True,
    ),
)


def read_plain(words: list[str]) -> UpOptions | None:
    """Parse a plain command line; return None to leave it to click."""
    by_name = {option.written: option for option in OPTIONS}
    given: dict[str, Any] = {}
    at = 0
    while at < len(words) and words[at] != "--":
        written, equals, value = words[at].partition("=")
        option = by_name.get(written)
        if option is None or (option.kind == FLAG and equals):
            return None
        if option.kind != FLAG and not equals:
            at += 1
            if at == len(words) or words[at].startswith("-"):
                return None
            value = words[at]
        found = _value(option, value)
        if found is None:
            return None
        given[option.field] = (
            (*given.get(option.field, ()), found) if option.kind == MANY else found
        )
        at += 1
    options = UpOptions(**given, command=tuple(words[at + 1 :]))
    return options if options.conflict() is None else None


def _value(option: Option, text: str) -> Any:
    if option.kind == FLAG:
        return True
    if option.kind == NUMBER:
        plain = text.isascii() and text.isdecimal()
        return int(text) if plain and option.bounds[0] <= int(text) <= option.bounds[1] else None
    if option.kind == SECONDS:
        plain = text.isascii() and text.replace(".", "", 1).isdecimal()
        return float(text) if plain and float(text) > 0 else None
    if option.kind == CHOICE:
        return text if text in option.choices else None
    return text
