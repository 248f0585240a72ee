"""Create an environment with Spark's own Kafka connector, to use it on a Tidelog cluster.

    python scripts/set_up_connector.py FOLDER

This installs a Python with PySpark in FOLDER, adds the connector's jars to Spark's own, and prints
the path of that Python. Its PySpark is not the project's version: for the newest version the
connector's dependencies are not available.

Invariant: the path of the Python is printed only if the environment is complete.
"""

import subprocess
import sys
import venv
from pathlib import Path

from fetch_kafka import NotTheJar, fetch

HERE = Path(__file__).parent
JARS = HERE / "connector_jars.txt"
PYSPARK = "4.0.0"


class NotSetUp(Exception):
    """The message is one line that says what failed."""


def set_up(folder: Path) -> Path:
    """Create the environment if needed; return the path of its Python."""
    folder = folder.absolute()
    python, stamp = folder / "bin" / "python", folder / ".complete"
    wanted = JARS.read_text() + PYSPARK
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, HERE / "set_up_spark.py", PYSPARK], check=False).returncode:
        raise NotSetUp(f"cannot install pyspark {PYSPARK} in {folder}; the reason is above")
    (spark,) = folder.glob("lib/python*/site-packages/pyspark")
    fetch(spark / "jars", JARS)
    stamp.write_text(wanted)
    return python


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python scripts/set_up_connector.py FOLDER\n")
        return 2
    try:
        python = set_up(Path(sys.argv[1]))
    except (OSError, NotTheJar, NotSetUp) as error:
        sys.stderr.write(f"Spark's own connector is not set up: {error}\n")
        return 1
    sys.stdout.write(f"{python}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
