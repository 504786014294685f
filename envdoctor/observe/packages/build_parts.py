"""What an environment has for compiling extensions: ninja, Python's headers, and DeepSpeed's ops when compiled."""

import os
import re
import sys
from collections.abc import Mapping

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.request import Request
from envdoctor.system.files import because_of
from envdoctor.system.message import Message

KEYS = ("build.ninja", "build.python_headers", "build.compiled")
NEEDS = ("pkg.*",)

_OPS = "deepspeed/ops"
#: deepspeed/ops/adam/cpu_adam_op.cpython-311-x86_64-linux-gnu.so, in a wheel built with DS_BUILD_OPS
_COMPILED = r"(\w+?)_op\.[^/]*\.so\Z"
_FEW = 200


def observe(request: Request) -> list[Fact]:
    """The facts of ``KEYS``, of an environment that would run here."""
    if not sys.platform.startswith("linux") or not request.place.live:
        where = Message("on Linux only") if request.place.live else Message("where the environment runs")
        return [Fact(key, Unknown(Message("compiling is looked at {}", where)), "", "environment") for key in KEYS]
    layout, environ = request.place, request.environ
    headers, place = _headers(layout, environ)
    compiled, folder = _compiled(layout, request.value("pkg.deepspeed"), environ)
    # On PATH, or among the environment's own programs, which are on PATH once it is activated.
    folders = [path for path in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(path)]
    folders.append(os.path.join(layout.prefix, "bin"))
    ninja = any(os.access(os.path.join(path, "ninja"), os.X_OK) for path in folders if "\0" not in path)
    return [
        Fact("build.ninja", ninja, "PATH", "environment"),
        Fact("build.python_headers", headers, place, "environment"),
        Fact("build.compiled", compiled, folder, "environment"),
    ]


def _headers(layout: Layout, environ: Mapping[str, str]) -> tuple[Value, str]:
    """Whether ``Python.h`` is where the interpreter says (sysconfig's "include", below its base prefix).

    The base prefix of a virtual environment is that of the interpreter its ``python`` is a link to.
    """
    if layout.executable is None or isinstance(layout.python_version, Unknown):
        return Unknown(Message("the interpreter is not known")), ""
    name = "python" + ".".join(layout.python_version.split(".")[:2])
    real = layout.files.resolved(layout.executable)
    prefixes = list(dict.fromkeys([os.path.dirname(os.path.dirname(real)), layout.prefix]))
    for prefix in prefixes:
        for folder in (name, name + "t"):
            path = os.path.join(prefix, "include", folder, "Python.h")
            if layout.files.is_file(path):
                return True, path
    expected = os.path.join(prefixes[0], "include", name)
    if any(environ.get(variable) for variable in ("CPATH", "C_INCLUDE_PATH")):
        return Unknown(Message("it is not in {}, but CPATH or C_INCLUDE_PATH names other folders", expected)), ""
    if layout.files.resolved(os.path.join(prefixes[0], "bin")) != os.path.dirname(real) or layout.kind == "path":
        return Unknown(Message("the interpreter's own folder is not known")), ""
    return False, expected


def _compiled(layout: Layout, deepspeed: Value, environ: Mapping[str, str]) -> tuple[Value, str]:
    """DeepSpeed's ops that need no compiling any more: those of its wheel, and those in torch's cache."""
    if not isinstance(deepspeed, str):
        return (), Message("deepspeed is not installed")
    found: set[str] = set()
    for site in layout.site_packages:
        top = os.path.join(site, *_OPS.split("/"))
        for folder in layout.files.names_or_none(top)[:_FEW]:
            if "." not in folder and not folder.startswith("__"):
                for name in layout.files.names_or_none(os.path.join(top, folder))[:_FEW]:
                    match = re.match(_COMPILED, name)
                    if match:
                        found.add(match.group(1))
    home = environ.get("HOME", "")
    cache = environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(home, ".cache", "torch_extensions")
    if os.path.isabs(cache) and "\0" not in cache:
        try:
            found |= _in_cache(cache, layout)
        except OSError as error:
            return Unknown(Message("torch's cache of compiled extensions cannot be read: {}", because_of(error))), cache
    return tuple(sorted(found)), _OPS


def _in_cache(cache: str, layout: Layout) -> set[str]:
    """Names of extensions below ``cache``/py311_cu124 or, as TORCH_EXTENSIONS_DIR has it, ``cache`` itself."""
    if not os.path.isdir(cache):
        return set()
    version = layout.python_version if isinstance(layout.python_version, str) else ""
    mine = "py" + "".join(version.split(".")[:2]) + "_"
    inner = [os.path.join(cache, name) for name in sorted(os.listdir(cache))[:_FEW]]
    folders = inner + [
        os.path.join(folder, name)
        for folder in inner
        if os.path.basename(folder).startswith(mine) and os.path.isdir(folder)
        for name in sorted(os.listdir(folder))[:_FEW]
    ]
    return {
        os.path.basename(folder)
        for folder in folders
        if os.path.isfile(os.path.join(folder, os.path.basename(folder) + ".so"))
    }
