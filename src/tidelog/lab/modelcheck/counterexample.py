"""Render the shortest path to a violation, as text or as data.

The text has the format of a story. Prose lines start with `# `. Each step is its action's name,
`----`, and the lines of the replica table that the step changed. The first and the last step
show the whole table.
"""

from typing import Any

from tidelog.lab.modelcheck.explorer import Model, Violation


def render(model: Model[Any], violation: Violation) -> str:
    """Return the path as the text of a story."""
    steps = "1 step" if violation.depth == 1 else f"{violation.depth} steps"
    lines = [f"# {model.name} breaks {violation.invariant}", "#"]
    meaning = model.meaning(violation.invariant)
    if meaning:
        lines += [f"# Invariant: {meaning}.", "#"]
    lines += [f"# This is a shortest path: {steps}.", ""]
    tables = [model.describe(step.state) for step in violation.path]
    lines += ["state", "----", *tables[0], ""]
    for step, before, after in zip(violation.path[1:], tables, tables[1:], strict=False):
        changed = [line for line in after if line not in before]
        lines += [step.action, "----", *(changed or ["(no visible change)"]), ""]
    lines += [f"check {violation.invariant}", "----", "VIOLATED", *tables[-1], ""]
    return "\n".join(lines)


def as_data(model: Model[Any], violation: Violation) -> dict[str, Any]:
    """Return the path as plain data, ready for JSON."""
    return {
        "model": model.name,
        "invariant": violation.invariant,
        "depth": violation.depth,
        "steps": [
            {"action": step.action, "state": model.describe(step.state)} for step in violation.path
        ],
    }
