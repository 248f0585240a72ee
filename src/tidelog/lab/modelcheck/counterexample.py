"""The shortest bad path, for people and for programs.

As text it has the shape of a story: prose behind `# `, then each step by its name, `----`, and the
lines of the replica table that the step changed; the whole table stands at both ends.
"""

from typing import Any

from tidelog.lab.modelcheck.explorer import Model, Violation


def render(model: Model[Any], violation: Violation) -> str:
    """The path as a story."""
    steps = "1 step" if violation.depth == 1 else f"{violation.depth} steps"
    lines = [f"# {model.name} breaks {violation.invariant}", "#"]
    meaning = model.meaning(violation.invariant)
    if meaning:
        lines += [f"# It should hold that {meaning}.", "#"]
    lines += [f"# No shorter way than these {steps} leads there.", ""]
    tables = [model.describe(step.state) for step in violation.path]
    lines += ["state", "----", *tables[0], ""]
    for step, before, after in zip(violation.path[1:], tables, tables[1:], strict=False):
        changed = [line for line in after if line not in before]
        lines += [step.action, "----", *(changed or ["(nothing to be seen)"]), ""]
    lines += [f"check {violation.invariant}", "----", "VIOLATED", *tables[-1], ""]
    return "\n".join(lines)


def as_data(model: Model[Any], violation: Violation) -> dict[str, Any]:
    """The path as plain data, ready for JSON."""
    return {
        "model": model.name,
        "invariant": violation.invariant,
        "depth": violation.depth,
        "steps": [
            {"action": step.action, "state": model.describe(step.state)} for step in violation.path
        ],
    }
