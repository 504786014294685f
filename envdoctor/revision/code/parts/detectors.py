"""Detectors on one syntax tree: places that reach beyond computing, version gates, idle functions.

They read what is written, so they can be misled on purpose: that nothing was found is no proof of harmlessness.
"""

import ast
import re
from collections.abc import Iterable
from functools import reduce
from operator import or_

from envdoctor.revision.code.parts.canonical import QUIET, is_log_call
from envdoctor.revision.code.parts.records import MINOR_ONLY, MODULE_LEVEL, VERSION_GATE, Site
from envdoctor.revision.code.parts.syntax import assigned, exact, short
from envdoctor.source.definitions import FunctionNode, all_nodes, children, dotted, last_name, text_of

#: What asks for a version, and which of its numbers.
_PARSERS = frozenset({"parse", "Version", "LooseVersion", "StrictVersion", "parse_version", "version"})
_ASKS_VERSION = re.compile(r"is_\w+_(?:version|or_higher|or_later|or_newer)\Z|is_\w+?_greater_or_equal")
_TESTS = (ast.Compare, ast.BoolOp, ast.IfExp)
_MAJOR, _MINOR, _WHOLE = 1, 2, 4
_FIELDS = {"major": _MAJOR, "minor": _MINOR}
_INDEXES: dict[object, int] = {0: _MAJOR, 1: _MINOR}

# Which dotted names reach beyond computing: the network, other programs, files, pickles, other code.
NETWORK = "network-call"
EXEC = "exec-call"
FILE_WRITE = "file-write"
PICKLE = "pickle-load"
DYNAMIC_IMPORT = "dynamic-import"

# A name stands for itself and for everything below it; the longest entry decides.
_REACHING = {
    NETWORK: """
        socket socketserver ssl urllib.request urllib.urlopen urllib2 urllib3 requests http.client http.server httpx
        aiohttp ftplib smtplib telnetlib poplib imaplib xmlrpc paramiko websocket websockets pycurl wget gdown boto3
        asyncio.open_connection asyncio.start_server webbrowser nltk.download torch.hub datasets.load_dataset
        huggingface_hub.hf_hub_download huggingface_hub.snapshot_download huggingface_hub.HfApi
        huggingface_hub.HfFileSystem huggingface_hub.upload_file huggingface_hub.upload_folder
        huggingface_hub.InferenceClient modelscope.snapshot_download""",
    EXEC: """
        eval exec compile __builtins__ builtins.eval builtins.exec builtins.compile builtins.__dict__ os.__dict__
        os.system os.popen os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.spawnl
        os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.posix_spawn os.posix_spawnp
        os.fork os.forkpty os.startfile subprocess pty.spawn commands ctypes.CDLL ctypes.cdll ctypes.PyDLL ctypes.pydll
        ctypes.WinDLL ctypes.windll ctypes.OleDLL ctypes.oledll ctypes.LibraryLoader ctypes.pythonapi cffi code codeop
        runpy asyncio.create_subprocess_exec asyncio.create_subprocess_shell types.CodeType types.FunctionType
        torch.utils.cpp_extension torch.ops.load_library torch.classes.load_library""",
    FILE_WRITE: """
        os.remove os.unlink os.rename os.renames os.replace os.rmdir os.removedirs os.mkdir os.makedirs os.mkfifo
        os.symlink os.link os.chmod os.chown os.truncate os.open shutil tempfile torch.save numpy.save numpy.savez
        numpy.savez_compressed numpy.savetxt safetensors.torch.save_file safetensors.torch.save_model
        safetensors.numpy.save_file logging.FileHandler sqlite3.connect""",
    PICKLE: """
        pickle.load pickle.loads pickle.Unpickler _pickle cPickle dill cloudpickle joblib.load torch.load
        pandas.read_pickle shelve marshal.load marshal.loads jsonpickle.decode yaml.load yaml.load_all yaml.unsafe_load
        yaml.full_load torch.package""",
    DYNAMIC_IMPORT: """
        __import__ builtins.__import__ importlib imp pkgutil zipimport sys.path sys.modules sys.meta_path
        sys.path_hooks os.sys site.addsitedir transformers.dynamic_module_utils""",
}
_HARMLESS = """
    importlib.metadata importlib.resources importlib.util.find_spec importlib.abc importlib.invalidate_caches
    shutil.which shutil.get_terminal_size shutil.disk_usage torch.hub.get_dir tempfile.gettempdir"""
_NAMES: dict[str, str | None] = {name: kind for kind, names in _REACHING.items() for name in names.split()}
_NAMES.update(dict.fromkeys(_HARMLESS.split()))

_OPENERS = frozenset({"open", "builtins.open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
_WRITING_METHODS = frozenset({"write_text", "write_bytes", "extractall", "symlink_to", "hardlink_to", "unlink"})
_INNER_PARTS = frozenset({"__globals__", "__builtins__", "__subclasses__"})
_FAULT_ENDINGS = ("Error", "Exception", "Warning", "Timeout", "Expired")
_SAFE_LOADERS = frozenset({"SafeLoader", "CSafeLoader", "BaseLoader"})


class Aliases:
    """What the names of a file stand for: ``np`` for ``numpy``, ``run`` for ``subprocess.run``, ``o`` after ``o = os``.

    A name that is bound twice stands for both.
    """

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.targets: dict[str, set[str]] = {}
        copies: list[tuple[str, str]] = []
        for node in nodes:
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        root = alias.name.partition(".")[0]
                        self._bind(alias.asname or root, alias.name if alias.asname else root)
                case ast.ImportFrom(module=module, names=names, level=0):
                    for alias in names:
                        self._bind(alias.asname or alias.name, f"{module}.{alias.name}")
                case ast.Assign(value=ast.Name() | ast.Attribute() as original):
                    value = dotted(original)
                    copies += [(name, value) for name in assigned(node)[0] if not value.startswith(".")]
        for name, value in copies:
            if value.partition(".")[0] in self.targets:
                for resolved in self.resolve(value):
                    self._bind(name, resolved)

    def _bind(self, name: str, target: str) -> None:
        known = self.targets.setdefault(name, set())
        if len(known) < 8:
            known.add(target)

    def resolve(self, name: str) -> list[str]:
        """Everything the dotted name can stand for; itself when it was not imported."""
        root, dot, rest = name.partition(".")
        return [target + dot + rest for target in sorted(self.targets.get(root, ()))] or [name]


def sites_of(tree: ast.Module, nodes: list[ast.AST]) -> list[Site]:
    """Calls and references that reach beyond computing, and version gates, in the order of the file; ``nodes`` are all
    nodes of the tree."""
    found: list[Site] = []
    aliases, versions = Aliases(nodes), _VersionNames(nodes)
    # Of what is still to be visited: node, scope, whether it runs at load, whether the major version was looked at.
    waiting: list[tuple[ast.AST, str, bool, bool]] = [(tree, "", True, False)]
    while waiting:
        node, scope, at_load, has_major = waiting.pop()
        inner = scope
        match node:
            case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                inner = f"{scope}.{name}".lstrip(".")
                around = [*node.decorator_list, node.args, *filter(None, [node.returns])]
                waiting += [(child, inner, False, has_major) for child in reversed(body)]
                waiting += [(child, inner, at_load, has_major) for child in around]
                continue
            case ast.ClassDef(name=name, body=body):
                inner = f"{scope}.{name}".lstrip(".")
                around = [*node.decorator_list, *node.bases, *node.keywords]
                waiting += [(child, inner, at_load, has_major) for child in (*reversed(body), *around)]
                continue
            case ast.Lambda(args=arguments, body=value):
                waiting += [(value, scope, False, has_major), (arguments, scope, at_load, has_major)]
                continue
            case ast.BoolOp() | ast.If() | ast.IfExp():
                has_major = has_major or versions.asks_major(node)
            case ast.Assign() | ast.AnnAssign() if at_load:
                inner = ".".join(filter(None, (scope, *assigned(node)[0][:1])))
        gate = versions.gate(node, has_major)
        if gate:
            found.append(Site(gate, inner or MODULE_LEVEL, short(node), short(node), at_load))
        kind, goes_on = _kind_of(node, aliases)
        if kind:
            found.append(Site(kind, inner or MODULE_LEVEL, _key(kind, node), short(node), at_load))
        waiting += [(child, inner, at_load, has_major) for child in reversed(goes_on)]
    return found


def _kind_of(node: ast.AST, aliases: Aliases) -> tuple[str | None, list[ast.AST]]:
    """What the node can do, and which of its children are still to be looked at."""
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            name = dotted(func)
            kind = _first(call_kind(resolved, node) for resolved in aliases.resolve(name))
            before = [] if name and not name.startswith(".") else [getattr(func, "value", func) if name else func]
            return kind or _getattr(node, aliases), [*before, *args, *keywords]
        case ast.Name(ctx=ast.Store() | ast.Del()):
            return None, []
        case ast.Attribute() | ast.Name():
            name = dotted(node)
            if name.startswith("."):
                return name_kind(name), children(node)
            # Without a call, `compile` and `code` are ordinary names for variables, `eval` and imported ones are not.
            known = name.partition(".")[0] in aliases.targets or name in ("eval", "exec", "__import__", "__builtins__")
            return (_first(map(name_kind, aliases.resolve(name))) if known else None), []
        case ast.ImportFrom(module=module, names=names, level=level) if any(alias.name == "*" for alias in names):
            return None if level else name_kind(f"{module}.*"), []
    return None, children(node)


def _getattr(node: ast.Call, aliases: Aliases) -> str | None:
    """``getattr(os, "system")`` is ``os.system``; with a computed name it can be anything of a dangerous module."""
    match node:
        case ast.Call(func=ast.Name(id="getattr" | "vars"), args=[owner, *keys]):
            module = dotted(owner)
        case _:
            return None
    if module.partition(".")[0] not in aliases.targets and module != "__builtins__":
        return None
    match keys:
        case [ast.Constant(value=key), *_]:
            return _first(name_kind(f"{resolved}.{key!s}") for resolved in aliases.resolve(module))
    dangerous = {"os", "builtins", "subprocess", "ctypes", "sys"}
    return None if dangerous.isdisjoint(aliases.resolve(module)) else EXEC


def _first(kinds: Iterable[str | None]) -> str | None:
    return next((kind for kind in kinds if kind), None)


def _key(kind: str, node: ast.AST) -> str:
    """What makes two places the same: their text; for files the function and its constants, for names of variables
    that hold a path change in every refactoring."""
    if kind == FILE_WRITE and isinstance(node, ast.Call):
        arguments = [*node.args, *(word.value for word in node.keywords)]
        parts = [part for argument in arguments for part in all_nodes(argument)]
        constants = [ascii(part.value) for part in parts if isinstance(part, ast.Constant)]
        return " ".join([dotted(node.func), *constants])[:4096]
    return exact(node)


def name_kind(name: str) -> str | None:
    """What a dotted name can do; None for harmless and unknown ones, and for constants and exceptions of a module."""
    last = name.rpartition(".")[2]
    if last in _INNER_PARTS:
        return EXEC
    if name in _NAMES:
        return _NAMES[name]
    if last.isupper() or last.endswith(_FAULT_ENDINGS):
        return None
    while name and name not in _NAMES:
        name = name.rpartition(".")[0]
    return _NAMES.get(name)


def call_kind(name: str, call: ast.Call) -> str | None:
    """What a call can do, from its (resolved) dotted name and its arguments."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    last = name.rpartition(".")[2]
    kind = name_kind(name)
    if kind == PICKLE and _is_safe_load(name, call, keywords):
        return None
    if kind:
        return kind
    if name == "numpy.load":
        return PICKLE if _is_set(keywords.get("allow_pickle")) else None
    if _is_set(keywords.get("trust_remote_code")):
        return DYNAMIC_IMPORT
    if name in _OPENERS or (last == "open" and name.startswith(".")):
        position = 0 if name.startswith(".") else 1
        mode = keywords.get("mode", call.args[position] if len(call.args) > position else None)
        return FILE_WRITE if _writes(mode, is_method=name.startswith(".")) else None
    return FILE_WRITE if last in _WRITING_METHODS and "." in name else None


def _is_safe_load(name: str, call: ast.Call, keywords: dict[str, ast.expr]) -> bool:
    if name == "torch.load":
        return getattr(keywords.get("weights_only"), "value", None) is True
    if name in ("yaml.load", "yaml.load_all"):
        loader = keywords.get("Loader", call.args[1] if len(call.args) > 1 else None)
        return last_name(loader) in _SAFE_LOADERS
    return False


def _is_set(value: ast.expr | None) -> bool:
    """Whether an argument was given that may be anything but False or None."""
    return value is not None and not (isinstance(value, ast.Constant) and value.value in (False, None))


def _writes(mode: ast.expr | None, *, is_method: bool) -> bool:
    """Whether a mode opens for writing; one that is not written down may."""
    if mode is None:
        return False
    if isinstance(mode, ast.Constant):
        # `image.open("picture.png")` is a method of something else than a path: its argument is no mode.
        text = text_of(mode) or ""
        return len(text) <= 4 and any(letter in text for letter in "wax+") and set(text) <= set("rwaxbtU+")
    return not is_method


def is_idle(function: FunctionNode) -> bool:
    """Whether calling the function can change nothing and says nothing: no assignment but to local names, and no call
    but of questions, loggers and what is raised. One that always raises is not idle: it fails loudly.
    """
    if any(isinstance(statement, ast.Raise) for statement in function.body):
        return False
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Raise():
                continue
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                return False
            case ast.Global() | ast.Nonlocal() | ast.Yield() | ast.YieldFrom() | ast.Await():
                return False
            case ast.Call(func=func):
                name = dotted(func)
                quiet = name in QUIET or name.endswith(("Error", "Exception", "Warning"))
                if not (quiet or is_log_call(node)):
                    return False
        waiting += children(node)
    return True


class _VersionNames:
    """Which names of a file hold a version or a part of one."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.lists: set[str] = set()
        self.parts: dict[str, int] = {}
        assignments = [(node.targets, node.value) for node in nodes if isinstance(node, ast.Assign)]
        for _ in range(2):  # once for `parts = v.split(".")`, once for `minor = int(parts[1])`
            for target, value in ((target, value) for targets, value in assignments for target in targets):
                self._learn(target, value)

    def _learn(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _ if self._is_list(value):
                self.lists.add(name)
            case ast.Name(id=name), _ if not (isinstance(value, _TESTS) or _is_question(value)):
                part = self._part(value)
                self.parts |= {name: part} if part else {}
            case ((ast.Tuple(elts=items) | ast.List(elts=items)), _) if any(map(self._is_list, all_nodes(value))):
                named = zip(items, _INDEXES.values(), strict=False)
                self.parts |= {element.id: part for element, part in named if isinstance(element, ast.Name)}

    def gate(self, node: ast.AST, has_major: bool) -> str | None:
        """The kind of gate that the node is; ``has_major``: the first number was asked for around it."""
        parts = self._compared(node)
        if parts == _MINOR and not has_major:
            return MINOR_ONLY
        return VERSION_GATE if parts or _is_question(node) else None

    def _compared(self, node: ast.AST) -> int:
        """Which parts of a version a comparison looks at."""
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        return reduce(or_, map(self._part, sides), 0)

    def asks_major(self, node: ast.BoolOp | ast.If | ast.IfExp) -> bool:
        """Whether a condition compares the first number or the whole version."""
        tests = node.values if isinstance(node, ast.BoolOp) else [node.test]
        return any(self._compared(inner) & ~_MINOR for test in tests for inner in all_nodes(test))

    def _part(self, node: ast.expr) -> int:
        """Which parts of a version an expression is made of."""
        found = 0
        waiting: list[ast.AST] = [node]
        while waiting:
            inner = waiting.pop()
            match inner:
                case ast.Subscript(value=base, slice=index) if self._is_list(base):
                    found |= _INDEXES.get(getattr(index, "value", None), _WHOLE)
                case ast.Attribute(value=base, attr=name) if name in _FIELDS and self._is_version(base):
                    found |= _FIELDS[name]
                case ast.Name(id=name) if name in self.parts:
                    found |= self.parts[name]
                case _ if self._is_version(inner):
                    found |= _WHOLE
                case _:
                    waiting += children(inner)
        return found

    def _is_version(self, node: ast.AST) -> bool:
        """``transformers.__version__``, ``version.parse(…)``, or a name that was assigned one of them."""
        match node:
            case ast.Call(func=func, args=args):
                name = dotted(func)
                return name.rpartition(".")[2] in _PARSERS and ("ersion" in name or any(map(self._is_version, args)))
            case ast.Attribute(attr="__version__" | "base_version"):
                return not dotted(node).startswith("sys.")
            case ast.Name(id=name):
                return name == "__version__" or self.parts.get(name) == _WHOLE
        return False

    def _is_list(self, node: ast.AST) -> bool:
        """``v.split(".")``, ``version.parse(v).release``, ``list(map(int, …))`` of one, or a name for one."""
        match node:
            case ast.Attribute(value=base, attr="release"):
                return self._is_version(base)
            case ast.Name(id=name):
                return name in self.lists
            case ast.Subscript(value=base, slice=ast.Slice()):
                return self._is_list(base)
            case ast.Call(func=ast.Attribute(value=base, attr="split"), args=[ast.Constant(value="."), *_]):
                return any(self._is_version(inner) or _says_version(inner) for inner in all_nodes(base))
            case ast.Call(func=ast.Name(id="list" | "tuple" | "map"), args=args):
                return any(map(self._is_list, args))
        return False


def _says_version(node: ast.AST) -> bool:
    name = dotted(node).lower()
    # No release of Python is waiting for a check that looks at its second number alone.
    return "version" in name.rpartition(".")[2] and "python" not in name and not name.startswith("sys.")


def _is_question(node: ast.AST) -> bool:
    """``is_transformers_version(">=", "4.42")`` and the like."""
    return isinstance(node, ast.Call) and _ASKS_VERSION.match(dotted(node.func).rpartition(".")[2]) is not None
