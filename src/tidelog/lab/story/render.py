"""Render a performance as JSON data or as a Mermaid diagram."""

from collections.abc import Iterator

from tidelog.lab.story.runner import Frame, Performance

INDENT = "    "


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
