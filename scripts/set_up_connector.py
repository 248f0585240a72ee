"""Make an environment for Spark's own Kafka connector, to try it on a cluster of ours.

    python scripts/set_up_connector.py FOLDER

leaves a Python with PySpark in FOLDER, the connector's jars beside Spark's own, and prints the
path of that Python. It is another PySpark than the project's: for the newest there is no
connector whose dependencies can be had. Always true: the Python is there only when all is.
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
    """One line that says what is wrong."""


def set_up(folder: Path) -> Path:
    """The environment's Python."""
    folder = folder.absolute()
    python, stamp = folder / "bin" / "python", folder / ".whole"
    wanted = JARS.read_text() + PYSPARK
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, HERE / "set_up_spark.py", PYSPARK], check=False).returncode:
        raise NotSetUp(f"pyspark {PYSPARK} could not be set up in {folder}")
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
