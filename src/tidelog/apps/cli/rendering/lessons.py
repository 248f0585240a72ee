"""Output of `tidelog story lessons`: the list, and one lesson."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.stories.lessons import Lesson
from tidelog.apps.stories.shelf import included

MARGIN = 3


def show_list(screen: Console, lessons: Sequence[Lesson]) -> None:
    """Print the title of each lesson, and its stories."""
    for lesson in lessons:
        screen.print(output.heading(f"{lesson.number}. {lesson.title}"), soft_wrap=True)
        for name in lesson.stories:
            command = f"tidelog story play {name.rpartition('/')[2]}"
            screen.print(output.indented(Text(command, output.NAME), MARGIN))
    screen.print()
    screen.print("read one: tidelog story lessons NUMBER")


def show_one(screen: Console, lessons: Sequence[Lesson]) -> None:
    """Print the text of a lesson, its stories and its steps on a real cluster."""
    (lesson,) = lessons
    screen.print(output.heading(f"{lesson.number}. {lesson.title}"), soft_wrap=True)
    screen.print()
    screen.print(Text(lesson.text, "italic"))
    screen.print()
    screen.print(output.heading("Stories"))
    for name in lesson.stories:
        command = f"tidelog story play {name.rpartition('/')[2]} --step"
        screen.print(output.indented(Text(command, output.NAME), MARGIN))
        screen.print(output.indented(output.faint(included()[name].title), MARGIN))
    screen.print()
    screen.print(output.heading("Now do it on a real cluster"))
    screen.print(output.faint("Start one in another terminal: tidelog up"))
    for number, step in enumerate(lesson.on_cluster, 1):
        screen.print(output.indented(Text(f"{number}. {step.say}"), MARGIN))
        screen.print(Text(" " * 2 * MARGIN).append(step.run, output.NAME), soft_wrap=True)
