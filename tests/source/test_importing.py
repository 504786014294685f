"""Imports followed through small packages: what stops them, what guards decide, what cannot be told."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from tables import cases

from envdoctor.matrix import load_toml
from envdoctor.source import Importing, Library, Stop, World

CASES = cases("importing.toml")

TABLE = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "source" / "importing.toml")

Follow = Callable[..., list[Stop]]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    """Write modules (``{"app/__init__.py": source}``) and follow an import: what stops it."""

    def run(
        files: Mapping[str, str],
        module: str = "app",
        *names: str,
        versions: Mapping[str, str] | None = None,
        python: tuple[int, ...] | None = (3, 11, 7),
    ) -> list[Stop]:
        for name, source in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(source), encoding="utf-8")
        known = versions or {}
        standard = frozenset(sys.stdlib_module_names)
        world = World(known.get, {}, python, "linux", standard, frozenset(("app", "lazy", "packaging")).__contains__)
        return Importing(Library([str(tmp_path)]), world).statement(module, names)

    return run


LAZY_TOOLS = "class _LazyModule: ...\ndef define_import_structure(folder): ...\n"
PACKAGING = {"packaging/__init__.py": "", "packaging/version.py": "class Version: ...\ndef parse(v): ...\n"}
LIB = {"lib/__init__.py": "def here(): ...\n", "lib/sub.py": "value = 1\n"}


def what(stops: list[Stop]) -> list[tuple[str, str, str]]:
    return [(stop.kind, stop.module, stop.name) for stop in stops]


def test_a_name_that_is_not_there_stops_the_import_at_its_line(follow: Follow) -> None:
    (stop,) = follow({**LIB, "app/__init__.py": "import os\nfrom lib import here, gone\n"})
    assert stop == Stop("name", "app", 2, "lib", "gone")


def test_a_bare_assertion_gives_up_in_the_words_of_its_handler(follow: Follow) -> None:
    app = """
        import lib
        major = int(lib.__version__.split(".")[0])
        try:
            assert major == 1
        except AssertionError:
            raise RuntimeError("lib must be 1")
    """
    (stop,) = follow({"lib/__init__.py": "__version__ = '2.8.0'\n", "app/__init__.py": app}, versions={"lib": "2.8.0"})
    assert (stop.kind, stop.name, stop.text) == ("raise", "RuntimeError", "lib must be 1")


def test_what_would_stop_it_next_in_other_modules_is_told_too(follow: Follow) -> None:
    files = {
        **LIB,
        "app/__init__.py": "from . import one\nfrom .two import x\nimport app.three\n",
        "app/one.py": "import absent\nfrom lib import gone\nabsent.call()\n",
        "app/two.py": "try:\n    import other\nexcept ImportError:\n    pass\nfrom lib.sub import gone as x\n",
        "app/three.py": "import lib\ny = lib.lost\n",
    }
    assert what(follow(files)) == [
        ("module", "absent", ""),
        ("name", "lib", "gone"),
        ("name", "lib.sub", "gone"),
        ("attribute", "lib", "lost"),
    ]
    assert what(follow(files, "app.two")) == what(follow(files))
    alone = {name: source for name, source in files.items() if name != "app/__init__.py"}
    assert what(follow({**alone, "app/__init__.py": ""}, "app.two")) == [("name", "lib.sub", "gone")]


@pytest.mark.parametrize(("source", "expected"), TABLE["missing"])
def test_what_is_missing(follow: Follow, source: str, expected: list[list[str]]) -> None:
    inner, failing = "from lib import lost\n", "import absent\ndef here(): ...\n"
    app = {"app/__init__.py": source, "app/inner.py": inner, "app/failing.py": failing}
    stops = follow({**LIB, **app, "app/own.py": "def f(ctx):\n    exec('x = 1', ctx)\n"})
    assert what(stops) == [tuple(stop) for stop in expected]


@pytest.mark.parametrize("source", TABLE["guarded"])
def test_what_does_not_stop_it(follow: Follow, source: str) -> None:
    assert follow({**LIB, **PACKAGING, "app/__init__.py": source}, versions={"lib": "1.9"}) == []


def test_a_guard_of_the_package_s_own_is_decided_by_its_body(follow: Follow) -> None:
    checks = """
        import importlib.metadata, importlib.util
        from packaging import version

        def _is_there(name, with_version=False):
            exists = importlib.util.find_spec(name) is not None
            found = "N/A"
            if exists:
                try:
                    found = importlib.metadata.version(name)
                except importlib.metadata.PackageNotFoundError:
                    exists = False
            return (exists, found) if with_version else exists

        _lib_available, _lib_version = _is_there("lib", with_version=True)

        def is_lib_available(least="1.0"):
            return _lib_available and version.parse(_lib_version) >= version.parse(least)
    """
    files = {
        **LIB,
        **PACKAGING,
        "app/checks.py": checks,
        "app/__init__.py": """
            from .checks import is_lib_available
            if is_lib_available('1.5'):
                from lib import gone
        """,
    }
    assert what(follow(files, versions={"lib": "1.9"})) == [("name", "lib", "gone")]
    assert follow(files, versions={"lib": "1.4"}) == []


def test_a_guard_that_looks_distributions_up_is_decided(follow: Follow) -> None:
    checks = """
        import importlib.metadata
        _MAP = importlib.metadata.packages_distributions()
        TRUE = {"1", "YES"}
        AUTO = TRUE.union({"AUTO"})

        def _names(module):
            listed = _MAP.get(module, [])
            found = [*(name for name in (module, "other") if name in listed), *listed, module]
            return list(dict.fromkeys(found))

        def is_lib_available():
            version = "N/A"
            for name in _names("lib"):
                try:
                    version = importlib.metadata.version(name)
                    break
                except importlib.metadata.PackageNotFoundError:
                    continue
            return version != "N/A" and "auto".upper() in AUTO and not any(one > "1" for one in ("0", "1"))
    """
    guarded = "from .checks import is_lib_available\nif is_lib_available():\n    from lib import gone\n"
    files = {**LIB, "app/checks.py": checks, "app/__init__.py": guarded}
    assert what(follow(files, versions={"lib": "1.9"})) == [("name", "lib", "gone")]
    assert follow(files) == []


def test_a_handler_that_uses_a_name_of_further_down_fails_itself(follow: Follow) -> None:
    source = """
        import operator
        COMPARE = {">=": operator.ge}

        def compare(one, sign, other):
            if isinstance(one, str):
                one = parse(one)
            return COMPARE[sign](one, other)

        def register():
            try:
                from lib import gone
            except ImportError as error:
                log.warning("not there")
                log.debug(error)

        if compare(3, ">=", 2):
            register()
        %s
    """
    below = {**LIB, "app/__init__.py": source % "log = object()"}
    assert what(follow(below)) == [("name", "lib", "gone")]
    assert follow({**LIB, "app/__init__.py": source % "import lib"}) == []
    above = {**LIB, "app/__init__.py": "log = object()\n" + dedent(source % "log = None")}
    assert follow(above) == []


def test_a_module_that_adds_to_itself_may_have_any_name(follow: Follow) -> None:
    made = {"lib/made.py": "from lib import made\ndef add(x):\n    setattr(made, x.name, x)\n"}
    assert follow({**LIB, **made, "app/__init__.py": "import lib.made\nx = lib.made.Any\n"}) == []


@pytest.mark.parametrize(("call", "refused"), CASES["keyword_class_another"])
def test_a_keyword_that_a_class_of_another_package_refuses(follow: Follow, call: str, refused: str | None) -> None:
    classes = """
        from dataclasses import dataclass

        @dataclass
        class Made:
            name: str
            size: int = 0

        class Open:
            def __init__(self, **options): ...

        class Derived(Made, object):
            def __init__(self, *rest, width): ...
    """
    source = f"from lazy import Made, Open, Derived\ntry:\n    x = {call}\nexcept ImportError:\n    x = None\n"
    stops = follow({"lazy/__init__.py": classes, "app/__init__.py": source})
    assert [(stop.kind, stop.module, stop.name, stop.keyword) for stop in stops] == (
        [("argument", "lazy", "Made", refused)] if refused else []
    )


@pytest.mark.parametrize(("given", "offered"), [("", False), (', {"helper": helper}', True), (", more", True)])
def test_a_module_that_puts_a_lazy_one_in_its_place_leaves_its_functions_behind(
    tmp_path: Path, given: str, offered: bool
) -> None:
    more = given.replace(", ", ", extra_objects=")
    lazy = f"""
        import sys
        from .tools import _LazyModule
        def helper(): ...
        _import_structure = {{"good": ["Fine"]}}
        sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], _import_structure{more})
    """
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(dedent(lazy))
    offers = Library([str(tmp_path)]).offers("lazy")
    assert offers is not None and ("helper" in offers.names) is offered
    assert (offers.lazy["Fine"], offers.open) == ("lazy.good", None)


def test_a_lazy_package_is_asked_for_the_name_that_is_taken(follow: Follow) -> None:
    lazy = """
        import sys
        from .tools import _LazyModule
        _import_structure = {"good": ["Fine"], "bad": ["Broken"]}
        _import_structure["more"] = ["Other"]
        sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], _import_structure)
    """
    files = {
        **LIB,
        "lazy/__init__.py": lazy,
        "lazy/tools.py": LAZY_TOOLS,
        "lazy/good.py": "class Fine: ...\n",
        "lazy/bad.py": "from lib import gone\nclass Broken: ...\n",
        "lazy/more.py": "class Other: ...\n",
    }
    assert follow(files, "lazy") == []
    assert follow(files, "lazy", "Fine") == []
    assert what(follow(files, "lazy", "Broken")) == [("name", "lib", "gone")]
    assert what(follow({**files, "app/__init__.py": "from lazy import Never\n"})) == [("name", "lazy", "Never")]
    by_ending = "class _LazyModule:\n    def __getattr__(self, name):\n        if name.endswith('Fast'): ...\n"
    files |= {"lazy/tools.py": by_ending, "app/__init__.py": "from lazy import OtherFast\n"}
    assert follow(files) == []


LAZY_BELOW = """
    import sys
    from .tools import _LazyModule, define_import_structure
    sys.modules[__name__] = _LazyModule(__name__, __file__, define_import_structure(__file__ / "models"))
"""
CLASS = "from .tools import requires\nimport absent\n{}class Speller: ...\n__all__ = ['Speller']\n"


@pytest.mark.parametrize(
    ("source", "dummies", "stopped"),
    [
        (CLASS.format("@requires(backends=('absent',))\n"), "", False),
        (CLASS.format(""), "class Speller: ...\n", False),
        (CLASS.format(""), "class Another: ...\n", True),
        ("from lib import gone\n" + CLASS.format("@requires(backends=('lib',))\n").replace("absent", "lib"), "", True),
    ],
    ids=["marked", "dummy", "neither", "another failure"],
)
def test_a_lazy_package_may_stand_something_in_for_what_asks_for_an_absent_package(
    follow: Follow, source: str, dummies: str, stopped: bool
) -> None:
    files = {
        **LIB,
        "lazy/__init__.py": LAZY_BELOW,
        "lazy/tools.py": LAZY_TOOLS,
        "lazy/utils/__init__.py": "",
        "lazy/utils/dummy_absent_objects.py": dummies,
        "lazy/models/tools.py": "def requires(backends): ...\n",
        "lazy/models/spelling.py": source,
    }
    assert bool(follow(files, "lazy", "Speller")) is stopped


def test_what_a_modeling_file_is_generated_from_is_not_imported(follow: Follow) -> None:
    files = {
        "lazy/__init__.py": LAZY_BELOW,
        "lazy/tools.py": LAZY_TOOLS,
        "lazy/models/modeling_a.py": "class Model: ...\n__all__ = ['Model']\n",
        "lazy/models/modular_a.py": "import absent\n__all__ = ['Model']\n",
    }
    assert follow(files, "lazy", "Model") == []


@pytest.mark.parametrize("source", TABLE["open"])
def test_of_a_module_that_makes_names_nothing_is_known(follow: Follow, source: str) -> None:
    files = {"lib/__init__.py": source, "lib/_compiled.so": "", "app/__init__.py": "from lib import gone\n"}
    assert follow(files) == []


def test_what_compares_versions_is_known_though_it_may_be_followed(follow: Follow) -> None:
    files = {
        **PACKAGING,
        "app/__init__.py": """
            import importlib.metadata
            from packaging import version
            if version.parse(version.parse(importlib.metadata.version("lib")).base_version) >= version.parse("2"):
                import absent
        """,
    }
    assert what(follow(files, versions={"lib": "2.1"})) == [("module", "absent", "")]
    assert follow(files, versions={"lib": "1.9"}) == []


def test_a_package_that_compares_versions_itself_says_so(follow: Follow) -> None:
    files = {
        "app/versions.py": "def require_version(text): ...\n",
        "app/__init__.py": """
            from .versions import require_version
            for one in ['lib>=2', 'lib<9']:
                require_version(one)
        """,
    }
    (stop,) = follow(files, versions={"lib": "1.9"})
    assert (stop.kind, stop.text) == ("raise", "lib>=2")


def test_a_module_that_a_finder_of_the_package_may_serve_is_not_missing(follow: Follow) -> None:
    hook = 'import sys\nOLD = {"lib.losses": "lib.new"}\ndef setup():\n    sys.meta_path.insert(0, Finder(OLD))\n'
    lib = {"lib/__init__.py": "from lib.util.old import setup\nsetup()\n", "lib/util/__init__.py": ""}
    app = "from lib.losses import Loss\nfrom lib.gone import Loss\n"
    stops = follow({**lib, "lib/util/old.py": hook, "app/__init__.py": app})
    assert what(stops) == [("module", "lib.gone", "")]


def test_a_recursive_function_ends(follow: Follow) -> None:
    source = """
        def is_available(n):
            if n:
                is_available(n)
            return is_available(n) or is_available(n)
        if is_available(1):
            import absent
    """
    assert follow({"app/__init__.py": source}) == []


@pytest.mark.parametrize(("values", "stops"), [(500, True), (501, False)])
def test_the_rounds_of_a_comprehension_are_followed_up_to_a_number(follow: Follow, values: int, stops: bool) -> None:
    app = f"if [one for one in {list(range(values))} if one >= 0]:\n    from lib import gone\n"
    assert bool(follow({**LIB, "app/__init__.py": app})) is stops


@pytest.mark.parametrize(
    "line",
    [
        *("a = (a, a)", "a = [*a, *a]", "a = f'{a}{a}'", "a = {1: a, 2: a}", "a = [a for b in (1, 2)]"),
        "b = []; b.append(a); b.append(a); a = b",
    ],
)
@pytest.mark.parametrize("asked", ["a == c", "1 in a", "(a if x else c)", "{a: 1}", "not a"])
def test_a_value_that_doubles_with_every_line_is_not_known(follow: Follow, line: str, asked: str) -> None:
    lines = "\n".join([line] * 64)
    copy = lines.replace("a", "c").replace("cppend", "append")
    app = f"import os\nx = os.environ\na = c = 'one'\n{lines}\n{copy}\nif {asked}:\n    pass\nfrom lib import gone\n"
    assert what(follow({**LIB, "app/__init__.py": app})) == [("name", "lib", "gone")]
