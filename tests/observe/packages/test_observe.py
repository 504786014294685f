"""Reading an environment touches nothing and opens little."""

import json
import subprocess
import sys
from pathlib import Path

from observing import write

from envdoctor.facts import ABSENT, Records

ROOT = Path(__file__).resolve().parents[3]

WATCH = """
import json, os, sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
from envdoctor.observe import Request, choose
from envdoctor.observe.gather import gather
events = []
watching = True
def hook(name, arguments):
    if watching and name in ("open", "subprocess.Popen", "socket.connect", "os.mkdir", "os.remove", "os.rename",
                             "os.posix_spawn", "os.exec", "os.fork", "ctypes.dlopen", "import"):
        flags = arguments[2] if name == "open" else 0
        events.append([name, str(arguments[0]), bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))])
sys.addaudithook(hook)
observed = gather(Request(environ={}, layout=choose(sys.argv[2], None, None, environ={}, cwd="/")), ["packages"])
watching = False
print(json.dumps([events, sorted(set(sys.modules) - before), len(observed)]))
"""


def watch(target: Path) -> tuple[list[tuple[str, str, bool]], list[str]]:
    """Audit events and new modules of reading ``target`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WATCH, str(ROOT), str(target)], capture_output=True, text=True, check=True
    )
    events, modules, _ = json.loads(done.stdout)
    return [tuple(event) for event in events], modules


def fill(site: Path, make_dist, count: int) -> None:
    for number in range(count):
        make_dist(site, f"package_{number}", "1.0", INSTALLER="pip\n")
    write(site, {"torch/version.py": "raise SystemExit\n__version__ = '2.5.1+cpu'\ncuda = None\nhip = None\n"})
    make_dist(site, "torch", "2.5.1", RECORD="")


def test_each_distribution_costs_four_opens_at_most(venv: Path, site: Path, make_dist) -> None:
    fill(site, make_dist, 50)
    events, _ = watch(venv)
    opened = [path for name, path, _ in events if name == "open" and path.startswith(str(site))]
    assert len(opened) <= 4 * 51 + 5


def test_nothing_is_written_started_connected_or_imported_and_costly_modules_are_left_alone(
    venv: Path, site: Path, make_dist
) -> None:
    fill(site, make_dist, 3)
    events, modules = watch(venv)
    assert [event for event in events if event[0] not in ("open", "import") or event[2]] == []
    foreign = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert foreign == {"envdoctor"}
    assert not {"importlib.metadata", "subprocess", "email", "packaging", "pathlib"} & set(modules)


def test_every_fact_is_registered_and_only_private_ones_hold_paths(
    venv: Path, site: Path, make_dist, read, matrix
) -> None:
    fill(site, make_dist, 3)
    make_dist(site, "broken", "1.0", header="")
    _, observed, _ = read(python=venv)
    assert all(fact.source == "environment" for fact in observed.seen)
    for fact in observed.facts:
        spec = matrix.registry.find(fact.key)
        assert spec is not None, fact.key
        assert str(venv) not in fact.origin
        if isinstance(fact.value, Records):
            for item in fact.value:
                assert set(item) | ({"said"} & spec.columns.keys()) == set(spec.columns)  # only where METADATA differs
                assert all(str(venv) not in str(item[name]) or spec.columns[name].privacy == "path" for name in item)
        else:
            assert spec.privacy != "public" or str(venv) not in str(fact.value)


def test_a_package_that_is_not_listed_is_absent(venv: Path, site: Path, make_dist, read) -> None:
    _, observed, facts = read(python=venv)
    assert (observed.incomplete, facts["dist"]) == (None, Records(()))
    make_dist(site, "numpy", "2.4.6")
    facts = read(python=venv)[1].known
    assert facts.value("pkg.numpy") == "2.4.6" and facts.value("pkg.torch") is ABSENT
