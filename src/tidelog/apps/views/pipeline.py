"""Views of pipelines: the plan of a pipeline file. A run's sums are `pipeline/report.py`."""

from dataclasses import asdict
from typing import Any

from tidelog.apps.pipeline.plan import Plan


def plan_as_data(plan: Plan) -> dict[str, Any]:
    """Convert a plan to what JSON can hold."""
    return {key: str(v) if key in ("first", "last") else v for key, v in asdict(plan).items()}
