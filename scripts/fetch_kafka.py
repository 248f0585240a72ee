"""Download Apache Kafka's jars: its broker to compare with, its tools to use on a Tidelog cluster.

    python scripts/fetch_kafka.py FOLDER [LIST]

This downloads missing jars into FOLDER, and prints a Java class path. The jars come from Maven
Central, or from the repository that TIDELOG_MAVEN_REPOSITORY names. LIST names the jars; the
default is kafka_jars.txt.

Invariant: a jar is kept only if its SHA-256 is that of its line in the list.
"""

import hashlib
import os
import sys
import urllib.request
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"
PATIENCE_S = 60
JARS = Path(__file__).with_name("kafka_jars.txt")


class NotTheJar(Exception):
    """The downloaded file has another SHA-256 than the list."""


def fetch(folder: Path, listed: Path = JARS) -> list[Path]:
    """Download the missing jars of the list; return the paths of all."""
    repository = os.environ.get("TIDELOG_MAVEN_REPOSITORY", REPOSITORY).rstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    jars = []
    for line in listed.read_text().splitlines()[1:]:
        group, artifact, version, digest = line.split()
        jar = folder / f"{artifact}-{version}.jar"
        if not jar.exists():
            _download(f"{repository}/{group}/{artifact}/{version}/{jar.name}", digest, jar, listed)
        jars.append(jar)
    return jars


def _download(url: str, digest: str, jar: Path, listed: Path) -> None:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        content = response.read()
    if hashlib.sha256(content).hexdigest() != digest:
        raise NotTheJar(f"{url} has another SHA-256 than {listed.name} lists; nothing is kept")
    partial = jar.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(jar)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        sys.stderr.write("usage: python scripts/fetch_kafka.py FOLDER [LIST]\n")
        return 2
    try:
        jars = fetch(*map(Path, sys.argv[1:]))
    except (OSError, NotTheJar) as error:
        sys.stderr.write(f"cannot download Kafka's jars: {error}\n")
        return 1
    sys.stdout.write(os.pathsep.join(str(jar) for jar in jars) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
