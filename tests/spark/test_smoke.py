"""The one test of Spark in `make test`: it starts, and runs a job."""

from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.smoke]


def test_spark_starts_and_counts(spark: Any) -> None:
    assert spark.range(10).count() == 10
