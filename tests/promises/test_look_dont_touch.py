"""Promise 1: ``check`` and ``facts`` import nothing of the target, no network; with --no-cache nothing is written."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

ELF = Path(__file__).resolve().parents[2] / "fixtures" / "elf"
COMMANDS = [("check", "--no-cache", "--no-config"), ("facts", "--no-cache", "--no-config")]
#: Besides the standard library: envdoctor, and what it needs to read arguments and to compare unusual versions.
ALLOWED = {"envdoctor", "click", "packaging", "tomli"}
#: Modules of the standard library that speak to a network or load other people's code.
FORBIDDEN = {"socket", "ssl", "http", "urllib.request", "asyncio", "importlib.metadata", "pickle", "runpy"}


def test_only_the_allow_list_is_imported(look):
    roots = {name.partition(".")[0] for name in look.seen.modules}
    foreign = {root for root in roots if root not in sys.stdlib_module_names and root not in ALLOWED}
    assert not {name for name in foreign if not name.startswith("_")}
    assert not FORBIDDEN & set(look.seen.modules)
    assert "2.5.0+cu118" in look.seen.out


def test_nothing_of_the_target_runs(look):
    assert not (look.home / "imported").exists()


def test_of_the_target_only_metadata_and_version_files_are_opened(look):
    opened = [path for path, _, _ in look.seen.opened if path.startswith(str(look.environment))]
    assert opened, "the environment was not read at all"
    names = {os.path.basename(path) for path in opened}
    # the first bytes of `python` tell a wrapper script from a program
    allowed = {"python", "METADATA", "INSTALLER", "RECORD", "PKG-INFO", "direct_url.json", "WHEEL"} | {
        "pyvenv.cfg",
        "version.py",
        "_version.py",
        "__init__.py",  # for the version that it may assign
    }
    endings = (".pth", ".cmake", ".egg-link", "cpp_lib.json")
    assert not {name for name in names if name not in allowed and not name.endswith(endings)}
    assert not [path for path in opened if path.endswith((".so", ".pyc"))]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_of_compiled_files_only_extensions_of_torch_and_torch_itself_are_opened(watch, environment, python_of, command):
    """Whether an extension was built for this torch stands only in its symbol table: those of the packages in the table
    torch-extensions are opened for reading, and the libraries of torch to compare with. Nothing is loaded, and no other
    compiled file is touched."""
    (site,) = environment.glob("lib/python3*/site-packages") if os.name != "nt" else [environment / "Lib/site-packages"]
    libraries = ("torch/lib/libc10.so", "torch/lib/libtorch_cpu.so", "torch/lib/libgomp.so.1")
    others = (
        "numpy/core.so",
        "torch/_C.so",
        "transformers/fast.so",
        "flash_attn.libs/libz.so",
        "torchvision.libs/libz.so",
    )
    for name in (*libraries, "flash_attn_2_cuda.so", *others):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ELF / (Path(name).name if name in libraries[:2] else "old-abi.so"), site / name)
    record = site / "flash_attn-2.6.3.dist-info" / "RECORD"
    record.write_text("flash_attn_2_cuda.so,,\nflash_attn.libs/libz.so,,\n")
    seen = watch(*command, "--python", python_of(environment))
    opened = {path for path, _, _ in seen.opened if path.startswith(str(site)) and ".so" in path}
    assert opened == {str(site / name) for name in (*libraries[:2], "flash_attn_2_cuda.so")}
    assert not [path for path in seen.written() if path.startswith(str(environment))]
    assert not [event for event, _ in seen.other if event.startswith("ctypes.dlopen") and "site-packages" in str(_)]


def test_no_socket_and_no_process_is_opened(look):
    seen = look.seen
    assert not [event for event, _ in seen.other if event.startswith(("socket.", "urllib."))]
    started = [
        arguments for event, arguments in seen.other if event.startswith(("subprocess.", "os.posix_spawn", "os.exec"))
    ]
    # Its own bounded children, which parse the code of the packages, are no programs of the environment.
    own = ("nvcc", "/envdoctor/system/launcher.py")
    assert not [words for words in started if not any(word in str(words) for word in own)]


def test_nothing_is_written(look):
    seen = look.seen
    ours = [path for path in seen.written() if "__pycache__" not in path and path != os.devnull]
    assert not ours
    changes = [
        event for event, _ in seen.other if event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link")
    ]
    assert not changes or all("__pycache__" in str(entry) for entry in seen.other if entry[0] in changes)
    assert look.after == look.before


def with_an_extension(environment: Path) -> None:
    """Give the environment's torch its libraries and its flash-attn a compiled file."""
    (site,) = environment.glob("lib/python3*/site-packages") if os.name != "nt" else [environment / "Lib/site-packages"]
    (site / "torch" / "lib").mkdir()
    for source, name in (
        ("libc10.so", "torch/lib/libc10.so"),
        ("libtorch_cpu.so", "torch/lib/libtorch_cpu.so"),
        ("new-glibcxx.so", "flash_attn_2_cuda.so"),
    ):
        shutil.copy(ELF / source, site / name)
    (site / "flash_attn-2.6.3.dist-info" / "RECORD").write_text("flash_attn_2_cuda.so,,\n")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_with_extensions_nothing_is_written_either(watch, environment, python_of, tmp_path, command):
    with_an_extension(environment)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    seen = watch(*command, "--python", python_of(environment))
    assert not [path for path in seen.written() if "__pycache__" not in path and path != os.devnull]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_no_cache_only_envdoctors_cache_is_written(watch, environment, python_of, tmp_path, command):
    with_an_extension(environment)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    arguments = [word for word in command if word != "--no-cache"]
    home = tmp_path / "cache"
    for _ in range(20):  # what changed a moment ago is not kept: a later change might have the same time
        first = watch(*arguments, "--python", python_of(environment))
        ours = [path for path in first.written() if "__pycache__" not in path and path != os.devnull]
        if ours:
            break
    assert ours
    kept = (str(home / "envdoctor" / "facts"), str(home / "envdoctor" / "derived"))
    assert all(path.startswith(kept) for path in ours)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if home not in path.parents and path != home}
    assert after == before
    second = watch(*arguments, "--python", python_of(environment))
    assert not [path for path in second.written() if "__pycache__" not in path and path != os.devnull]
    assert re.sub(r"in [\d.]+ s", "", second.out) == re.sub(r"in [\d.]+ s", "", first.out)
