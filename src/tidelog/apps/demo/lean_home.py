"""A home for Spark without pyspark's zip: workers then import pyspark from where pip put it.

Spark puts `python/lib/pyspark.zip` of its home before all else on its Python workers' path; a zip
has no compiled files, so each of its half a dozen kinds of worker compiles pyspark anew. Without
the zip the demo's job takes a quarter less processor time.
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
