"""Render a performance as plain text, JSON data, a Mermaid diagram or a Markdown page."""

from collections.abc import Iterator

from tidelog.lab.story.grammar import RULE, Story
from tidelog.lab.story.runner import Frame, Performance, perform_all

INDENT = "    "


def as_text(performance: Performance) -> Iterator[str]:
    """Yield lines of text: prose, each command and its output."""
    story = performance.story
    yield story.title
    yield f"policy: {performance.policy}"
    yield from story.prose
    for frame in performance.frames:
        if frame.step.given:
            continue
        yield ""
        yield from frame.step.prose
        yield f"> {frame.step.text}"
        yield from (INDENT + line for line in frame.output)
        for problem in frame.problems:
            yield from (f"!{INDENT[1:]}{line}" for line in problem.splitlines())
    if story.closing:
        yield ""
        yield from story.closing


def as_data(performance: Performance) -> dict[str, object]:
    """Return everything as plain dicts and lists."""
    return {
        "path": performance.story.path,
        "title": performance.story.title,
        "covers": list(performance.story.covers),
        "policy": performance.policy,
        "passed": performance.passed,
        "frames": [_frame_data(frame) for frame in performance.frames],
        "problems": [{"line": p.line, "message": p.message} for p in performance.problems],
    }


def _frame_data(frame: Frame) -> dict[str, object]:
    return {
        "line": frame.step.line,
        "command": frame.step.text,
        "given": frame.step.given,
        "prose": list(frame.step.prose),
        "output": list(frame.output),
        "messages": [
            {"from": line.sender, "to": line.receiver, "text": line.text, "lost": line.lost}
            for line in frame.lines
            if line.sender
        ],
        "replicas": {replica.name: replica.description for replica in frame.replicas},
        "problems": list(frame.problems),
    }


def as_mermaid(performance: Performance) -> Iterator[str]:
    """Yield a sequence diagram of the steps that are not part of `given:`."""
    yield "sequenceDiagram"
    names = [replica.name for replica in performance.frames[-1].replicas]
    yield from (f"{INDENT}participant {name}" for name in names)
    for frame in performance.frames:
        if frame.step.given or frame.step.word in ("expect", "epochs", "isr", "files", "log"):
            continue
        over = f"{names[0]},{names[-1]}" if len(names) > 1 else "".join(names)
        yield f"{INDENT}Note over {over}: {_plain(frame.step.text)}"
        for line in frame.lines:
            if line.sender:
                arrow = "-x" if line.lost else "->>"
                yield f"{INDENT}{line.sender}{arrow}{line.receiver}: {_plain(line.text)}"
            elif line.text.split(" ", 1)[0] in names:
                who, _, what = line.text.partition(" ")
                yield f"{INDENT}Note right of {who}: {_plain(what)}"
            else:
                yield f"{INDENT}Note over {over}: {_plain(line.text)}"


def _plain(text: str) -> str:
    """Replace `;` and `#`, which Mermaid would interpret."""
    return text.replace(";", ",").replace("#", "no. ")


def as_markdown(story: Story) -> Iterator[str]:
    """Yield a page: prose, the output of each step by policy, and the diagrams."""
    performances = perform_all(story)
    yield f"# {story.title}"
    yield ""
    yield from story.prose
    by_line = {frame.step.line: {} for performance in performances for frame in performance.frames}  # type: dict[int, dict[str, Frame]]
    for performance in performances:
        for frame in performance.frames:
            by_line[frame.step.line][performance.policy] = frame
    yield from _given(story)
    for line in sorted(by_line):
        yield from _step(by_line[line], len(performances))
    for performance in performances:
        yield from ("", f"## {performance.policy}", "", "```mermaid")
        yield from as_mermaid(performance)
        yield "```"


def _given(story: Story) -> Iterator[str]:
    given = [step.text for step in story.steps if step.given]
    if given:
        yield from ("", "Given:", "", "```text", *given, "```")


def _step(frames: dict[str, Frame], policies: int) -> Iterator[str]:
    step = next(iter(frames.values())).step
    if step.given:
        return
    yield ""
    if step.prose:
        yield from (*step.prose, "")
    yield "```text"
    yield step.text
    outputs = dict.fromkeys(frame.output for frame in frames.values())
    for output in outputs:
        said = [name for name, frame in frames.items() if frame.output == output]
        everyone = len(said) == policies or len(outputs) == 1
        if output:
            yield RULE if everyone else f"{RULE} {', '.join(said)}"
            yield from output
    yield "```"
