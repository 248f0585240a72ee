"""A home for Spark without pyspark's zip: workers then import pyspark from where pip put it.

Spark puts `python/lib/pyspark.zip` of its home before all else on its Python workers' path, and
each of its half a dozen kinds of worker imports pyspark from there. Where pip alone put it, it
also has to be compiled each time. Without the zip the demo's Python workers take 4 seconds of
processor time where a compiled zip takes 6, and its first batches are done 5 seconds sooner.

For the demo's job alone, which is a process of its own: SPARK_HOME goes on to whatever a process
starts, and another Spark must not find it.
"""

import os
from importlib.util import find_spec

PARTS = ("bin", "jars", "data", "sbin")


def lean_home(folder: str) -> str | None:
    """Make it in a folder; its path. None where pyspark is not from pip: its home is left alone."""
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
