"""How long do the compiled files of an environment take? Times the ABI check alone, in a process of its own.

    PYTHON -I benchmarks/extensions.py PREFIX CACHE

PYTHON has envdoctor, PREFIX is the environment to be read and CACHE the folder of envdoctor's cache; ``-`` is none.
Prints ``{"ms": …, "cpu": …, "packages": …, "files": …, "symbols": …}``. ``ms`` (and ``cpu``, which leaves out what
other processes take) has the imports of the reader in it, because every ``envdoctor check`` pays them. ``symbols`` are
the undefined symbols of torch that were looked up, counted again for every file, after the clock was stopped.
"""

import json
import os
import sys
import time

from envdoctor.knowledge.matrix import load_matrix
from envdoctor.observe.packages import choose, observe


def main() -> int:
    """Read, then count."""
    prefix, cache = sys.argv[1:3]
    table = load_matrix().table("torch-extensions")
    layout = choose(prefix, None, None, environ=os.environ, cwd="/")
    facts = observe(layout).facts
    started, used = time.perf_counter(), time.process_time()
    from envdoctor.observe.binaries import extension_fact, libstdcxx_fact

    kept = None if cache == "-" else cache
    extensions = extension_fact(facts, layout, table, cache=kept).value
    libstdcxx_fact(extensions, layout, os.environ, cache=kept)
    spent, used = time.perf_counter() - started, time.process_time() - used
    from envdoctor.observe.binaries.reading.extension_files import compiled_files
    from envdoctor.observe.binaries.reading.extension_reading import read_package

    dists = {item["name"]: item for item in next(fact.value for fact in facts if fact.key == "dist")}
    modules = {row["name"]: row["modules"] for row in table["package"]}
    packages = []
    for item in extensions:
        dist = dists[item["package"]]
        found, _ = compiled_files(dist["path"], dist["kind"], modules[dist["name"]], layout.site_packages, layout.files)
        packages.append(read_package(dist, found, layout.files))
    files = [file for package in packages for file in package.files]
    counts = {"packages": len(packages), "files": len(files), "symbols": sum(len(file.symbols) for file in files)}
    print(json.dumps({"ms": 1000 * spent, "cpu": 1000 * used, **counts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
