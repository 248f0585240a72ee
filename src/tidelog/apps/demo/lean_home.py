"""A Spark home without pyspark's zip, so that workers import pyspark from pip's installation.

Spark puts `python/lib/pyspark.zip` of its home first on the path of its Python workers. Each of
about six kinds of worker imports pyspark from that zip. If only pip installed pyspark, each import
also compiles the zip's modules again. Without the zip, the demo's Python workers use 4 seconds of
CPU time; with a compiled zip they use 6. The first batches finish 5 seconds earlier.

Use it only in the demo's job, which is a separate process: child processes inherit SPARK_HOME, and
another Spark must not use this home.
"""

import os
from importlib.util import find_spec

PARTS = ("bin", "jars", "data", "sbin")


def lean_home(folder: str) -> str | None:
    """Create the home in a folder and return its path; None if pyspark was not installed by pip."""
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places or not os.path.isdir(os.path.join(places[0], "jars")) or not find_spec("py4j"):
        return None
    home = os.path.join(folder, "spark-home")
    os.makedirs(home, exist_ok=True)
    for part in PARTS:
        if os.path.isdir(os.path.join(places[0], part)):
            os.symlink(os.path.join(places[0], part), os.path.join(home, part))
    return home
