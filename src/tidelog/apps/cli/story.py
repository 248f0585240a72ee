"""`tidelog story`: run text scenarios of replicas on the broker's code."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import (
    Section,
    examples,
    format_option,
    history_option,
    story_rule_option,
    usage_error,
    write_history,
)

if TYPE_CHECKING:
    from tidelog.lab.story.grammar import Story


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog story list",
        "tidelog story lessons",
        "tidelog story play hw-loses-acked-record",
        "tidelog story check my-story.txt",
    ),
)
def story() -> None:
    """Run text scenarios of replicas (stories) on the broker's code."""


def _complete_story(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of included stories."""
    from tidelog.lab.story.library import SUFFIX, story_folder

    names = sorted(path.stem for path in story_folder().rglob("*" + SUFFIX))
    return [name for name in names if name.startswith(incomplete)]


@story.command("list", epilog=examples("tidelog story list", "tidelog story list --format json"))
@format_option()
def list_command(form: str) -> int:
    """List the included stories and their titles."""
    from tidelog.apps.cli.rendering import story as rendering
    from tidelog.lab.story.grammar import StoryError
    from tidelog.lab.story.library import list_stories

    try:
        stories = list_stories()
    except StoryError as error:
        raise _as_usage_error(error) from error
    data = {"stories": [rendering.summary(story) for story in stories]}
    return output.conclude(form, True, data, lambda screen: rendering.show_list(screen, stories))


@story.command(
    "lessons",
    epilog=examples(
        "tidelog story lessons",
        "tidelog story lessons 5",
        "tidelog story lessons --format json",
    ),
)
@click.argument("number", type=int, required=False)
@format_option()
def lessons_command(number: int | None, form: str) -> int:
    """List the lessons, or show lesson NUMBER.

    A lesson has a short text, stories to play, and commands to do the same on a real cluster.
    """
    from tidelog.apps.cli.rendering import lessons as rendering
    from tidelog.apps.stories.lessons import lessons

    found = lessons()
    if number is not None:
        if not 1 <= number <= len(found):
            raise usage_error(f"there is no lesson {number}; there are lessons 1 to {len(found)}")
        found = found[number - 1 : number]
    data = {"lessons": [lesson.as_data() for lesson in found]}
    show = rendering.show_list if number is None else rendering.show_one
    return output.conclude(form, True, data, lambda screen: show(screen, found))


@story.command(
    "play",
    epilog=examples(
        "tidelog story play hw-loses-acked-record",
        "tidelog story play hw-loses-acked-record --step",
        "tidelog story play truncation/hw-loses-acked-record --policy leader-epoch",
        "tidelog story play my-story.txt --format mermaid",
        "tidelog story play zombie-leader --history events.jsonl",
    ),
)
@click.argument("name", shell_complete=_complete_story)
@story_rule_option()
@click.option("--step", "stepwise", is_flag=True, help="Show one step per key press.")
@history_option()
@format_option("mermaid")
def play_command(
    name: str, policy: str | None, stepwise: bool, history_file: str | None, form: str
) -> int:
    """Run one story step by step, and show where rules differ.

    NAME is a story's name, folder/name, or the path of a file. Without --policy, the story runs
    under each rule that it names. Exit code 0 means that every expectation of the
    story holds.

    With --step, a terminal shows one step and the replicas' logs: Enter or space is the next step,
    b the one before, g the first, G the last, and q quits.
    """
    from tidelog.apps.cli.rendering import story as rendering
    from tidelog.lab.story.grammar import StoryError
    from tidelog.lab.story.library import find, load
    from tidelog.lab.story.runner import perform_all

    if stepwise:
        from tidelog.apps.cli.rendering.stepping import require_terminal

        if form != "text":
            raise usage_error(f"--step can't be combined with --format {form}")
        require_terminal()
    if Path(name).is_dir():
        raise usage_error(
            f"{name} is a folder; `tidelog story check {name}` runs all stories in it"
        )
    try:
        chosen = load(find(name))
    except StoryError as error:
        raise _as_usage_error(error) from error
    chosen = _with_policy(chosen, policy) if policy else chosen
    if history_file and len(chosen.policies) > 1:
        raise usage_error(
            "--history needs one rule; add --policy with one of " + ", ".join(chosen.policies)
        )
    performances = perform_all(chosen)
    if history_file:
        write_history(history_file, performances[0].history)
    if stepwise:
        from tidelog.apps.cli.rendering.stepping import step_through
        from tidelog.apps.stories.playing import story_data

        return step_through(story_data(chosen, "", performances))
    report = rendering.StoryReport(performances)
    if form == "mermaid":
        click.echo("\n".join(rendering.sequence_diagram(performances)))
        return 0 if report.passed else 1
    return output.conclude(form, report.passed, report.as_data(), report.show)


def _with_policy(chosen: "Story", policy: str) -> "Story":
    """Return the story under one rule; without expected output if it does not name the rule."""
    from dataclasses import replace

    if policy in chosen.policies:
        return replace(chosen, policies=(policy,))
    steps = tuple(replace(step, expected=None) for step in chosen.steps)
    return replace(chosen, policies=(policy,), steps=steps)


@story.command(
    "check",
    epilog=examples(
        "tidelog story check",
        "tidelog story check my-story.txt stories/",
        "tidelog story check --format json",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@format_option()
def check_command(names: tuple[str, ...], form: str) -> int:
    """Run stories, and check that their expectations hold.

    NAME is a file, a folder, or the name of an included story; without NAME, all included stories
    run. Each story runs under each of its rules: every `expect` and `check` must hold, and
    every output in the story must match. Exit code 0 means that all stories pass.
    """
    from tidelog.apps.cli.rendering import story as rendering
    from tidelog.lab.story.grammar import StoryError
    from tidelog.lab.story.library import check, find

    try:
        paths = [Path(name) if Path(name).exists() else find(name) for name in names]
    except StoryError as error:
        raise _as_usage_error(error) from error
    verdicts = []
    with output.progress("running stories") as show_progress:
        for verdict in check(paths):
            verdicts.append(verdict)
            show_progress(len(verdicts), f"{len(verdicts)} runs, {verdict.title}")
    passed = all(verdict.passed for verdict in verdicts)
    data = {"plays": [rendering.verdict_data(verdict) for verdict in verdicts]}
    return output.conclude(form, passed, data, lambda s: rendering.show_verdicts(s, verdicts))


def _as_usage_error(error: Exception) -> click.UsageError:
    text = str(error)
    if text.startswith("no story") and "did you mean" not in text:
        text += "; `tidelog story list` lists the stories"
    return usage_error(text)
