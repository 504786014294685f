"""Which dotted names reach beyond computing: the network, other programs, files, pickles, other code."""

import ast

from envdoctor.source.definitions import last_name, text_of

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
