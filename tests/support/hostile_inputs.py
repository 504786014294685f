"""Hostile inputs for every reader, the same ones for the same seed: real ones, cut, repeated, spliced and bent."""

import json
import random
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from elf_writer import shared_object
from rewriting import rewrite

from envdoctor.app import JobError, Sources, UsageProblem, collect_facts, load_configuration
from envdoctor.experiments import RecordingError, read_recording
from envdoctor.facts import Unknown
from envdoctor.matrix import Matrix, RuleError, TomlError, load_matrix, parse_rule, parse_toml
from envdoctor.observe import (
    AssignmentError,
    JsonProblem,
    ObservationError,
    RecipeFileError,
    parse_assignments,
    parse_object,
    read_error,
    read_facts_file,
    read_recipe,
)
from envdoctor.observe.packages import followed
from envdoctor.observe.recipe.formats import Formats
from envdoctor.observe.recipe.script import calls_of
from envdoctor.revision import HeaderError, PinError, described, flatten, parse_header, read_pins
from envdoctor.source import NotANotebook, TooMuch
from envdoctor.source.uses import code_of
from envdoctor.versions import NotARequirement, holds, read_requirement, satisfies

ROOT = Path(__file__).resolve().parents[2]
PIECES = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[31m", b"\r\n", b"'''", b'"""', b"[[", b"{" * 200, b"(" * 500),
    *(b"a." * 300, b"9" * 5000, b"-1", b"1e999", b"NaN", b"\xe2\x80\xae", b"../" * 40, b"%s" * 20, b"*" * 100),
    *(b"==" * 50, b"import "),
    *(struct.pack("<Q", value) for value in (0, 1, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)),
)
CODE = (
    b"import os\nfrom a import b\nclass C(D):\n    def f(self, x=1, *y, z: int = 2, **k):\n        return g(f'{x}')\n"
)
SCRIPT = (
    b"import numpy as np\nfrom trl import T\nclass C(T):\n    def f(self, x=1, *, y):\n        super().f(z=np.float)\n"
    b"try:\n    C(a=1)\nexcept TypeError:\n    pass\nif is_a_available():\n    x = [b for b in np.c.d]\n"
)
#: What code is refused with.
UNREAD = (SyntaxError, RecursionError, MemoryError, NotANotebook, TooMuch)
#: A package whose imports are followed, with what such packages do; `lib` is taken from, bent too.
FOLLOWED = b"""import importlib.metadata, sys
from lib import here, sub, gone as other
from lib.sub import *
_MAP = importlib.metadata.packages_distributions()
TABLE = {"app": ["Name", "Other"], "b": []}
def is_lib_available(least="1.0", *rest, key=sys.maxsize):
    for name in [one for one in _MAP.get("lib", []) if one] or ("lib",):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found >= least
if is_lib_available() and "x".upper() in {"X"}.union({"Y"}):
    from lib import missing
class Name(sub.Base):
    value = lib.value
    @property
    def f(self): return lambda: 1
    def g(
        self, a: "x" = here(),
    ) -> None:
        '''text
at the margin'''
sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], TABLE)
"""
NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "source": f"%%time\n{SCRIPT.decode()}!ls\nx = !ls\n"}] * 3, "nbformat": 4}
).encode()
PICKLE = b"\x80\x02}q\x00(X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
PICKLE += b"ctorch\nFloatStorage\n"
PICKLE += b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00K\x02K\x02\x86K\x02K\x01\x86\x89}tRu."
#: What is pasted, one after another: each is repeated, too.
PASTED = b"""Traceback (most recent call last):
  File "/opt/site-packages/peft/__init__.py", line 22, in <module>
    from transformers import Cache, HybridCache
ImportError: cannot import name 'HybridCache' from 'transformers' (/opt/site-packages/transformers/__init__.py)

During handling of the above exception, another exception occurred:

XError: f() got an unexpected keyword argument 'a'
AttributeError: module 'a.b' has no attribute 'c'
"""
HEADER = json.dumps({"w": {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
PACKAGE = {
    "demo-1.0.dist-info/METADATA": b"Name: demo\nVersion: 1.0\nRequires-Dist: torch (>=2,<3) ; extra == 'x'\n",
    "demo-1.0.dist-info/RECORD": b"demo/__init__.py,sha256=abc,10\ndemo/_C.so,,\n",
    "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_28_x86_64\n",
    "demo-1.0.dist-info/direct_url.json": b'{"url": "https://user:pass@host/x", "vcs_info": {"commit_id": "abc"}}',
    "torch-2.5.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.5.0\nRequires-Dist: numpy\n",
    "torch/version.py": b"__version__ = '2.5.0+cu118'\ncuda = '11.8'\n",
    "demo/_C.cpython-311-x86_64-linux-gnu.so": shared_object(
        asks=["_ZN3c104test"], needs=["libtorch.so"], versions={"libc.so.6": ["GLIBC_2.34"]}
    ),
    "extra.pth": b"/somewhere\nimport os; os.system('x')\n../up\n",
}


class Seen(NamedTuple):
    """What one input of a kind cost in seconds, and the exception that is no sentence for a user, or None."""

    kind: str
    number: int
    seconds: float
    escaped: Exception | None


def run(count: int, seed: int) -> Iterator[Seen]:
    """Give ``count`` inputs to the readers, in turn; those of whole environments cost most and are a twentieth."""
    rng = random.Random(seed)
    matrix = load_matrix()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, by the thousand; the child that parses ignores them too
        readers = dict(_readers(Path(folder), matrix))
        files = [kind for kind in readers if kind in PACKAGE]
        kinds = [kind for kind in readers if kind not in PACKAGE]
        for number in range(count):
            kind = files[number // 20 % len(files)] if number % 20 == 0 else kinds[number % len(kinds)]
            read, refusals, seeds = readers[kind]
            content = _bent(rng, rng.choice(seeds))
            began = time.perf_counter()
            escaped = None
            try:
                read(content)
            except refusals:
                pass
            except Exception as error:
                escaped = error
            yield Seen(kind, number, time.perf_counter() - began, escaped)


def _bent(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0:
                data[place : place + rng.randrange(1, 9)] = b""
            case 1:
                data[place:place] = rng.choice(PIECES)
            case 2:
                data[place : place + 1] = bytes([rng.randrange(256)])
            case 3:
                del data[place:]
            case 4:
                data[place:place] = data[place : place + rng.randrange(1, 200)] * rng.choice((2, 50, 3000))
            case 5:
                data[place : place + 8] = rng.choice(PIECES)[:8]
            case _:
                data[place:place] = rng.randbytes(rng.randrange(1, 64))
        del data[4 << 20 :]
    return bytes(data)


Reader = tuple[Callable[[bytes], object], tuple[type[Exception], ...], list[bytes]]


def _readers(folder: Path, matrix: Matrix) -> Iterator[tuple[str, Reader]]:
    place = folder / "input"

    def from_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def written(content: bytes) -> object:
            rewrite(place, content)
            return read(place)

        return written

    def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda content: read(content.decode("utf-8", "surrogateescape"))

    def configuration(path: Path) -> object:
        return load_configuration(path.replace(path.with_name("envdoctor.toml")))

    def config(content: bytes) -> object:
        return flatten(parse_object(content).data, {"torch_dtype": "dtype"})

    rules = [path.read_bytes() for path in sorted((ROOT / "matrices" / "rules").rglob("*.toml"))[::40]]
    models = [json.dumps(json.loads(path.read_bytes())["config"]).encode() for path in _fixtures("models")]
    recording = b'{"schema": "envdoctor.experiments-recording/1", "suite": "quick", "facts": {}}\n'
    recording += b'{"probe": "attention", "observations": []}\n'
    pins = b'{"schema": "envdoctor.pins/1", "models": {"a/b": {"revision": "x", "files": {"c": "sha1:d"}, '
    pins += b'"headers": {}}}}'
    toml = [b'fail-on = "error"\nset = { "recipe.batch_size" = 2 }\n[[ignore]]\nid = "a"\nreason = "b"\n']
    headers = [struct.pack("<Q", len(HEADER)) + HEADER + bytes(8)]
    assignments = [b"recipe.batch_size=2", b"pkg.torch=2.5.0+cu118", b'gpu.name=["A100"]']
    requirements = [b"torch[a,b] (>=2.1,!=2.2.*) ; python_version < '3.12'"]
    markers = [b"python_version >= '3.8' and extra == 'x'"]
    registry, uses = matrix.registry, partial(code_of, own=())

    def rule(data: bytes) -> object:
        return parse_rule("x", "x", parse_toml(data, "x"), registry)

    def facts(path: Path) -> object:
        return read_facts_file(path, registry)

    yield "facts", (from_file(facts), (ObservationError,), _all("environments"))
    yield "rule", (rule, (TomlError, RuleError), rules)
    yield "configuration", (from_file(configuration), (UsageProblem,), toml)
    yield "config.json", (config, (JsonProblem,), models)
    yield "code", (partial(uses, notebook=False, definitions=True), UNREAD, [*[CODE] * 3, CODE * 50])
    yield "script", (partial(uses, notebook=False), UNREAD, [CODE, SCRIPT, SCRIPT * 50])
    yield "imports", (partial(_followed, folder / "followed"), (), [*[FOLLOWED] * 3, FOLLOWED * 50])
    yield "notebook", (partial(uses, notebook=True), UNREAD, [NOTEBOOK])
    yield "pickle", (lambda content: (described(content, "zip"), described(content, "prefix")), (), [PICKLE])
    yield "traceback", (text(lambda pasted: read_error(_repeated(pasted))), (), [PASTED, *PASTED.splitlines()])
    yield "header", (lambda content: parse_header(content, len(content)), (HeaderError,), headers)
    yield "pins", (from_file(lambda path: read_pins(str(path))), (PinError,), [pins])
    yield "recording", (from_file(read_recording), (RecordingError,), [recording])
    yield "assignment", (text(lambda given: parse_assignments([given], registry)), (AssignmentError,), assignments)
    yield "requirement", (text(read_requirement), (NotARequirement,), requirements)
    yield "marker", (text(lambda given: holds(given, {"python_version": "3.11"})), (ValueError,), markers)
    yield (
        "version",
        (text(lambda given: satisfies(given, ">=2.1")), (ValueError,), [b"2.5.0+cu118", b"1!2.0.post1.dev3"]),
    )
    for ending in ("yaml", "jsonc", "sh"):
        seeds = [path.read_bytes() for top in ("recipes", "stories") for path in _below(top, ending)]
        yield f"recipe.{ending}", (partial(_recipe, folder / f"recipe.{ending}", matrix), (RecipeFileError,), seeds)
    scripts = [path.read_bytes() for path in _below("recipes", "py")]
    yield "recipe.py", (partial(calls_of, notebook=False), UNREAD, scripts)
    for path, held in PACKAGE.items():
        yield path, (partial(_environment, folder, path, matrix), (UsageProblem, JobError), [held])


def _repeated(pasted: str) -> str:
    """One after another: every eighth to more than what is read of a text, others to a sixteenth of it."""
    return pasted * ((1 << (16 if len(pasted) % 8 else 20)) // (len(pasted) + 1) + 1)


def _environment(folder: Path, changed: str, matrix: Matrix, content: bytes) -> object:
    """A folder of packages of which one file is the input."""
    for path, held in {**PACKAGE, changed: content}.items():
        (folder / "packages" / path).parent.mkdir(parents=True, exist_ok=True)
        rewrite(folder / "packages" / path, held)
    return collect_facts(Sources(path=str(folder / "packages"), gpu=False, cache=False, environ={}, cwd=folder), matrix)


def _followed(folder: Path, content: bytes) -> object:
    """A package and one that it takes from, both the input, whose imports are followed."""
    for name in ("app", "lib"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        rewrite(folder / name / "__init__.py", content)
    asked = {"folders": [str(folder)], "root": "/", "python": "3.11.7", "platform": "linux", "complete": True}
    asked |= {"versions": {"app": "1.0", "lib": "2.0"}, "owners": {}, "followed": ["app", "lib"]}
    entries = [["import app", "app", None, False], ["from app import Name", "app", "Name", True]]
    return followed.followed({**asked, "entries": entries})


def _recipe(place: Path, matrix: Matrix, content: bytes) -> object:
    rewrite(place, content)
    return read_recipe([place.name], str(place.parent), Formats.with_releases(matrix), lambda key: Unknown("not given"))


def _below(name: str, ending: str) -> list[Path]:
    return sorted((ROOT / "fixtures" / name).rglob(f"*.{ending}"))


def _fixtures(name: str) -> list[Path]:
    return sorted((ROOT / "fixtures" / name).glob("*.json"))


def _all(name: str) -> list[bytes]:
    return [path.read_bytes() for path in _fixtures(name)]
