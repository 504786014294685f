"""The house: imports run downwards by its floors, and no two modules import each other."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "envdoctor"
#: From the ground up. A room may import what stands before it in this list, and what is in the same room.
FLOORS = (
    "system",
    "versions",
    "facts",
    "source",
    "matrix",
    "observe",
    "judge",
    "remedy",
    "revision",
    "peak",
    "experiments",
    "report",
    "app",
    "cli",
)
ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
#: Loaded by the target's interpreter, never imported here.
PAYLOAD = "envdoctor.payload"
#: Names of the standard library that its oldest interpreter, Python 3.8, lacks.
NEWER = {"functools.cache", "itertools.pairwise", "itertools.batched", "math.lcm", "typing.TypeAlias"}


def modules() -> dict[str, Path]:
    """Every module of envdoctor by its dotted name; a package goes by its folder's name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del found["envdoctor"]  # the public face: it holds the version and, on demand, the names of app/
    return found


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules of envdoctor that a file imports anywhere: at its top, inside a function, for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in below)


def floor(module: str) -> int:
    """The place of a module's floor; the package's own face and ``__main__`` stand on the top, the doors of rooms on
    the ground."""
    parts = module.split(".")
    if parts[1:] == ["door"]:
        return -1
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS else len(FLOORS)


def test_every_room_has_a_floor() -> None:
    assert {*FLOORS, "payload"} == ROOMS


def test_imports_run_downwards() -> None:
    known = modules()
    upwards = [
        f"{name} imports {other}"
        for name, path in sorted(known.items())
        if not name.startswith(PAYLOAD)
        for other in imports(path, known)
        if floor(other) > floor(name) or other.startswith(PAYLOAD)
    ]
    assert upwards == []


def test_the_payload_imports_names_that_python_3_8_has() -> None:
    nodes = (node for path in (PACKAGE / "payload").rglob("*.py") for node in ast.walk(ast.parse(path.read_bytes())))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {f"{node.module}.{alias.name}" for node in froms for alias in node.names} & NEWER == set()


def test_no_two_modules_import_each_other() -> None:
    known = modules()
    graph = {name: set(imports(path, known)) - {name} for name, path in known.items()}
    while True:
        free = {name for name, others in graph.items() if not others & graph.keys()}
        if not free:
            break
        graph = {name: others for name, others in graph.items() if name not in free}
    in_circles = {name: sorted(others & graph.keys()) for name, others in sorted(graph.items())}
    assert in_circles == {}


def test_what_is_nearest_is_decided_at_one_place() -> None:
    named = {
        (module, node.name)
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and "nearest" in node.name
    }
    assert named == {("envdoctor.versions.releases", "nearest")}


def test_contributing_names_every_room_from_the_ground_up() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    order = text[text.index("in this order") : text.index("The first page")]
    assert re.findall(r"`([a-z]+)`", order) == list(FLOORS)
    assert {room for room in ROOMS if f"`envdoctor/{room}/`" not in text} == set()


def test_what_is_required_is_imported() -> None:
    listed = re.search(r"(?m)^dependencies = \[\n(.*?)^\]", (PACKAGE.parent / "pyproject.toml").read_text(), re.DOTALL)
    assert listed is not None
    modules = {"pyyaml": "yaml"}
    required = {
        modules.get(name.lower(), name.lower().replace("-", "_")) for name in re.findall(r'"([A-Za-z0-9-]+)', listed[1])
    }
    imported = {
        name.partition(".")[0]
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert required - imported == set()


def test_kinds_are_asked_by_views_and_patterns() -> None:
    """``isinstance`` again and again means that nobody knows what a value is."""
    asked = sum(
        isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    assert asked <= 1_000
