"""The tree of commands.

    demo       a real cluster, a Spark job, a killed leader, nothing lost
    up         a cluster on this machine; status, down and broker look after it
    cluster    who is in a running cluster, and what is in danger
    partition  every replica of a partition, side by side; elections of leaders
    topic      topics made, listed, described, altered, deleted
    produce    records written, from stdin or files
    consume    records read, and followed
    group      consumer groups listed, described, reset, deleted
    config     settings of topics and brokers
    reassign   replicas moved from broker to broker
    completion what makes a shell complete commands and topics
    inspect    the files of a log directory, without a broker
    audit      every replica's files on disk, checked and compared on Spark
    repair     check the files of a stopped broker, and mend them from another folder
    store      what is in a cluster's metadata store, and copies of it
    verify     clients and faults on a real cluster, and a check of all they saw
    pipeline   topics to a lake, windows over topics, a lake to topics, on Spark
    story      small text plays of replicas, played on the broker's own code
    sim        whole clusters of that code under seeded faults
    model      every state of small models, and mutants that must be caught

Always true: a command's module is imported when that command is asked for, and no other's;
so what one command needs is paid for by that command alone.
Exit codes: 0 all holds, 1 something does not, 2 the command line is wrong.
"""

import click

from tidelog.apps.cli.usage import LazyCommands, Root, examples

COMMANDS = LazyCommands(
    {
        "demo": "tidelog.apps.cli.demo:demo",
        "up": "tidelog.apps.cli.local.up:up",
        "status": "tidelog.apps.cli.local.running:status",
        "down": "tidelog.apps.cli.local.running:down",
        "broker": "tidelog.apps.cli.local.broker:broker",
        "cluster": "tidelog.apps.cli.cluster:cluster",
        "partition": "tidelog.apps.cli.partition:partition",
        "topic": "tidelog.apps.cli.topic:topic",
        "produce": "tidelog.apps.cli.records.produce:produce",
        "consume": "tidelog.apps.cli.records.consume:consume",
        "group": "tidelog.apps.cli.group:group",
        "config": "tidelog.apps.cli.config:config",
        "reassign": "tidelog.apps.cli.reassign:reassign",
        "completion": "tidelog.apps.cli.completion:completion",
        "inspect": "tidelog.apps.cli.inspect:inspect",
        "audit": "tidelog.apps.cli.audit:audit",
        "repair": "tidelog.apps.cli.repair:repair",
        "store": "tidelog.apps.cli.store:store",
        "verify": "tidelog.apps.cli.verify:verify",
        "pipeline": "tidelog.apps.cli.pipeline:pipeline",
        "story": "tidelog.apps.cli.story:story",
        "sim": "tidelog.apps.cli.sim:sim",
        "model": "tidelog.apps.cli.model:model",
    }
)
"""Name -> "module:attribute", in the order in which they are best learnt."""


@click.group(
    cls=Root,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "tidelog up",
        "tidelog produce greetings --create",
        "tidelog consume greetings -e",
        "tidelog cluster health",
        "tidelog story play hw-loses-acked-record",
        "tidelog sim run --seeds 100",
        "tidelog model table",
    ),
)
@click.version_option(package_name="tidelog", prog_name="tidelog")
def cli() -> None:
    """A replicated commit log: watch replicas disagree, and prove that ours do not.

    Exit code 0 means that all holds, 1 that something does not, 2 that the command line
    is wrong.
    """


def main() -> None:
    """What the `tidelog` script calls."""
    cli.main()
