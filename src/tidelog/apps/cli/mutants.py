"""`tidelog model mutants`: take one rule away at a time; each loss must be noticed."""

from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.usage import examples, format_option, near, workers_option

if TYPE_CHECKING:
    from tidelog.apps.cli.mutant_hunt import Prey


@click.command(
    "mutants",
    epilog=examples(
        "tidelog model mutants --list",
        "tidelog model mutants keep-what-followers-had",
        "tidelog model mutants --format json",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "list_only", is_flag=True, help="Name the mutants, hunt none.")
@workers_option()
@format_option()
def mutants(names: tuple[str, ...], list_only: bool, workers: int | None, form: str) -> int:
    """Remove one rule at a time and see the checker or the simulator catch it.

    Mutants are the code that ships with one rule taken out, each known from a bug that
    Kafka had or from a published model. Exit code 0 means that all were found.
    """
    from tidelog.apps.cli import mutant_hunt, output

    chosen = _choose(names, mutant_hunt.all_prey())
    if list_only:
        data = {"mutants": [prey.as_data() for prey in chosen]}
        return output.conclude(form, True, data, lambda s: mutant_hunt.show_list(s, chosen))
    with output.progress("hunting mutants", len(chosen)) as tell:
        catches = mutant_hunt.hunt_all(chosen, workers, tell)
    data = {"mutants": [catch.as_data() for catch in catches]}
    found = all(catch.found for catch in catches)
    return output.conclude(form, found, data, lambda s: mutant_hunt.show_catches(s, catches))


def _choose(names: tuple[str, ...], known: "list[Prey]") -> "list[Prey]":
    by_name = {prey.name: prey for prey in known}
    for name in names:
        if name not in by_name:
            raise click.UsageError(
                f"no mutant {name!r}; {near(name, by_name)}", click.get_current_context()
            )
    return [by_name[name] for name in names] or known
