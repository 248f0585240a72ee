"""Write the picture for the docs: `python -m tidelog.apps.demo.report.picture_file FILE`.

The picture shows a real run without Spark. Use it to update docs/tutorial/killed-leader.svg.
"""

import sys
from tempfile import TemporaryDirectory

from tidelog.apps.demo.play import Audience, Play
from tidelog.apps.demo.report import picture
from tidelog.apps.demo.report.picture import Shape
from tidelog.apps.demo.timeline import Timeline

SIZE = (860, 240)
NAME = "killed-leader"


def main(path: str) -> None:
    """Run the demo and write its picture."""
    with TemporaryDirectory(prefix="tidelog-demo-") as work:
        audience = Audience(print, lambda _note: None, lambda _bootstrap: None)
        _, timeline = Play(audience, work).run()
    write(timeline, path)


def write(timeline: Timeline, path: str) -> None:
    """Write the part of the picture around the kill to a file."""
    (title, window), *_ = picture.around_the_kill(timeline)
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture.alone(timeline, window, Shape(*SIZE, NAME), title))


if __name__ == "__main__":
    main(sys.argv[1])
