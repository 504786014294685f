"""A package counts when its files were seen: broken environments are never green, through the command line."""

import os
import py_compile
import shutil
import struct
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from dists import install
from elf_writer import shared_object
from forking import Forking
from observing import write

PROGRAM = "torch/bin/torch_shm_manager"
EXTENSION = "torch/_C.cpython-311-x86_64-linux-gnu.so"
LIBRARY, C10 = "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so"
SOURCES = {
    "torch": {
        "torch/__init__.py": "from torch import nn\nmanager = ('torch', 'bin', 'torch_shm_manager')\n",
        PROGRAM: "#!/bin/sh\n",
        "torch/bin/test_jit": "#!/bin/sh\n",
        "torch/nn.py": "class Module: ...\n",
        "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None\n",
    },
    "transformers": {
        "transformers/__init__.py": "import torch\nfrom .trainer import Trainer\n__version__ = '5.23.0'\n",
        "transformers/trainer.py": "class Trainer:\n    def train(self): ...\n",
    },
    "trl": {"trl/__init__.py": "from transformers import Trainer\n"},
}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "trl": "1.0.0"}


def build(folder: Path) -> Path:
    """An environment as pip leaves it: sources, extension modules, libraries, and lists with sizes and digests."""
    for name, sources in SOURCES.items():
        files: dict[str, str | bytes] = dict(sources)
        if name == "torch":
            for file, needs in ((EXTENSION, "libtorch_cpu.so"), (LIBRARY, "libc10.so"), (C10, "libc.so.6")):
                files[file] = compiled(needs)
        info = install(folder, name, VERSIONS[name], files=files)
        (info / "INSTALLER").write_text("pip\n")
        (info / "RECORD").write_text("".join(_line(folder, file) for file in files))
    return folder


def compiled(needs: str) -> bytes:
    """A shared object with 64 KiB of code, which is loaded with all of the file."""
    content = bytearray(shared_object(needs=[needs]) + bytes([0x90]) * (1 << 16))
    struct.pack_into("<I", content, 68, 5)
    struct.pack_into("<QQ", content, 96, len(content), len(content))
    return bytes(content)


def _line(folder: Path, file: str) -> str:
    content = (folder / file).read_bytes()
    return f"{file},sha256={urlsafe_b64encode(sha256(content).digest()).decode().rstrip('=')},{len(content)}\n"


@pytest.fixture
def check(run: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """``check`` of the environment after a change to it."""

    def look(change: Callable[[Path], object] = lambda site: None) -> Any:
        site = build(tmp_path / "site")
        change(site)
        return run("check", "--no-config", "--no-cache", "--path", "site", "--format", "json")

    return look


def told(result: Any) -> list[str]:
    return [one["message"] for one in result.json["findings"] if one["severity"] == "error"]


def test_a_whole_environment_is_not_accused(check):
    result = check()
    assert (told(result), result.json["findings"], result.json["unjudged"]) == ([], [], [])


def gone(*names: str) -> Callable[[Path], object]:
    def remove(site: Path) -> None:
        for name in names:
            shutil.rmtree(site / name) if (site / name).is_dir() else (site / name).unlink()

    return remove


def rewritten(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda site: (site / name).write_bytes(content((site / name).read_bytes()))


RECORD = "torch-2.13.0.dist-info/RECORD"
INIT = "transformers/__init__.py"


def put(code: bytes, start: int) -> bytes:
    """Zeros from there on."""
    return code[:start] + bytes(len(code) - start)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param(gone("torch", RECORD), "torch/__init__.py", id="folder and list of torch are gone"),
        pytest.param(gone(EXTENSION), EXTENSION, id="what torch imports first"),
        pytest.param(gone("torch/__init__.py"), "torch/__init__.py", id="a package that is left a namespace"),
        pytest.param(gone("torch/nn.py"), "torch/nn.py", id="a module inside"),
        pytest.param(gone(LIBRARY), LIBRARY, id="a library"),
        pytest.param(rewritten(INIT, lambda text: bytes(4096)), INIT, id="zeros after a power cut"),
        pytest.param(rewritten(INIT, lambda text: text + b"def (\n"), INIT, id="a syntax error"),
        pytest.param(rewritten(INIT, lambda text: b""), INIT, id="emptied"),
        pytest.param(rewritten(INIT, lambda text: text[:-5]), INIT, id="cut in the middle of a line"),
        pytest.param(rewritten(EXTENSION, lambda code: code[:100]), EXTENSION, id="an extension module cut off"),
        pytest.param(rewritten(EXTENSION, lambda code: bytes(len(code))), EXTENSION, id="one of zeros"),
        pytest.param(rewritten(EXTENSION, lambda code: code + b"more"), EXTENSION, id="one of another build"),
        pytest.param(rewritten(EXTENSION, lambda code: put(code, 4096)), EXTENSION, id="one of zeros behind a page"),
        pytest.param(rewritten(EXTENSION, lambda code: put(code, 232)), EXTENSION, id="one of a head alone"),
        pytest.param(rewritten(LIBRARY, lambda code: put(code, 1 << 15)), LIBRARY, id="a library whose half is zeros"),
        pytest.param(gone(PROGRAM), PROGRAM, id="a program that the import asks for"),
    ],
)
def test_a_file_that_is_gone_or_damaged_is_an_error(check, change, named):
    result = check(change)
    assert result.code == 1
    assert any(named in message for message in told(result)), told(result)


@pytest.mark.skipif(sys.platform != "linux", reason="the ELF files of Linux")
@pytest.mark.parametrize("head", [{4: 1}, {5: 2}, {18: 183 if os.uname().machine == "x86_64" else 62}, {18: 3}])
def test_a_library_of_another_machine_is_an_error(live, head):
    def change(code: bytes) -> bytes:
        ((place, value),) = head.items()
        return code[:place] + bytes([value]) + code[place + 1 :]

    result = live(rewritten(EXTENSION, change))
    assert result.code == 1 and any(EXTENSION in message for message in told(result))


def test_a_library_that_was_patched_is_not_judged(check):
    result = check(rewritten(EXTENSION, lambda code: code[:-1] + b"!"))
    assert result.code == 3 and any(EXTENSION in line for line in result.json["unjudged"])


def test_a_program_that_no_import_asks_for_may_be_gone(check):
    assert check(gone("torch/bin/test_jit")).json["findings"] == []


@pytest.mark.parametrize("edited", [lambda text: text + b"# mine\n", lambda _: b"class Trainer: ..."])
def test_a_module_that_somebody_edited_is_a_warning(check, edited):
    result = check(rewritten("transformers/trainer.py", edited))
    (finding,) = result.json["findings"]
    assert (result.code, finding["severity"]) == (0, "warning")
    assert finding["message"] == "transformers 5.23.0 was edited since it was installed: transformers/trainer.py"


#: Root reads what it likes, unless it gives that up.
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
REFUSED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if ROOT else ()


@pytest.fixture(scope="module")
def refused(compiled: Path) -> Iterator[Forking]:
    """What starts ``envdoctor`` for somebody who may be refused a file."""
    forking = Forking(compiled, *REFUSED)
    yield forking
    forking.end()


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.skipif(ROOT and not shutil.which("setpriv"), reason="root cannot be refused anything")
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        *("torch", "torch/lib", LIBRARY, INIT, "trl", "trl/__init__.py", "transformers/trainer.py"),
        *("transformers-5.23.0.dist-info", "transformers-5.23.0.dist-info/METADATA"),
    ],
)
def test_what_may_not_be_read_is_said_first_and_exit_3(tmp_path, refused, name, listed):
    site = build(tmp_path / "site")
    if not listed:
        if name in ("torch/lib", LIBRARY):
            pytest.skip("nothing says that it is there")
        for info in site.glob("*.dist-info"):
            (info / "RECORD").unlink()
    mode = (site / name).stat().st_mode
    (site / name).chmod(0)
    words = ("check", "--no-config", "--no-cache", "--path", "site")
    code, out, _ = refused.run(words, tmp_path, os.environ, 60)
    (site / name).chmod(mode)
    assert code == 3, out
    head, _, _ = out.decode().partition("No findings")
    head = " ".join(head.split())
    assert os.strerror(13) in head and name.partition("/")[0].partition("-")[0] in head


@pytest.fixture
def live(run: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """``check`` of a virtual environment of this machine after a change, with more words and variables."""

    def look(change: Callable[[Path], object], *more: str, **variables: str) -> Any:
        site = build(tmp_path / f"env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
        write(
            tmp_path / "env",
            {"pyvenv.cfg": f"home = {os.path.dirname(os.path.realpath(sys.executable))}\nversion = 3.11.7\n"},
        )
        with (tmp_path / "env/pyvenv.cfg").open("a") as settings:
            settings.write("include-system-site-packages = false\n")
        (tmp_path / "env/bin").mkdir()
        (tmp_path / "env/bin/python").symlink_to(os.path.realpath(sys.executable))
        change(site)
        words = ("--python", tmp_path / "env/bin/python", "--format", "json")
        return run("check", "--no-config", "--no-cache", "--no-gpu", *words, *more, env=variables)

    return look


@pytest.mark.parametrize(("home", "closed"), [("file", True), ("folder/new", False)])
def test_a_model_that_is_not_there_and_cannot_be_stored_is_told(live, tmp_path, home, closed):
    write(tmp_path, {"file": "", "folder/x": ""})
    result = live(lambda site: None, "--model", "Qwen/Qwen2.5-7B", HF_HOME=str(tmp_path / home))
    messages = [one["message"] for one in result.json["findings"]]
    assert any(f"{tmp_path / home} cannot be written" in message for message in messages) == closed


@pytest.mark.parametrize(
    ("front", "code"),
    [
        ({"dataclasses.py": "x = 1\n"}, 1),
        ({"dataclasses.py": "def dataclass(cls): ...\ndef is_dataclass(cls): ...\n"}, 0),
        ({"dataclasses/notes.txt": ""}, 0),
        ({"multiprocessing/__init__.py": "from . import reduction\n__all__ = dir(reduction)\n"}, 0),
    ],
)
def test_a_module_of_pythons_own_that_pythonpath_hides_is_told(live, tmp_path, front, code):
    def change(site: Path) -> None:
        write(tmp_path / "front", {"multiprocessing/reduction.py": "", **front})
        (site / "torch/nn.py").write_text("from multiprocessing import *\n_C.init()\nclass Module: ...\n")
        (site / "trl/__init__.py").write_text("from torch.nn import _started\nfrom transformers import Trainer\n")

    result = live(change, PYTHONPATH=str(tmp_path / "front"))
    assert result.code == code, told(result)
    assert [one for one in told(result) if "dataclasses.py (PYTHONPATH) hides" in one] == told(result)


@pytest.mark.parametrize("content", [bytes(4096), b"def (\n"])
def test_without_a_list_it_is_what_the_imports_open(live, content):
    def damage(site: Path) -> None:
        (site / "transformers-5.23.0.dist-info/RECORD").unlink()
        (site / INIT).write_bytes(content)

    result = live(damage)
    assert (result.code, len(told(result))) == (1, 1) and INIT in told(result)[0]


def in_front(source: str) -> Callable[[Path], object]:
    def change(site: Path) -> None:
        other = write(site.parent / "other", {"torch/__init__.py": source})
        (site / "mine.pth").write_text(f"import sys; sys.path.insert(0, '{other}')\n")

    return change


def test_a_torch_in_front_is_named_and_what_is_judged(live):
    result = live(in_front("raise ImportError('not this one')\n"))
    messages = [one["message"] for one in result.json["findings"]]
    assert any(one.startswith("torch comes from ") and "installed torch 2.13.0" in one for one in messages)
    assert result.code == 1 and any("not this one" in message for message in messages)


def test_a_torch_in_front_does_not_end_the_check_of_the_hidden_one(live):
    def change(site: Path) -> None:
        in_front("x = 1\n")(site)
        (site / LIBRARY).write_bytes(b"")

    result = live(change)
    assert result.code == 1 and any(LIBRARY in message for message in told(result))


@pytest.mark.parametrize("info", [True, False])
def test_a_package_that_an_installer_has_in_its_hands_is_not_judged(check, info):
    def change(site: Path) -> None:
        if info:
            for name in ("RECORD", "INSTALLER"):
                (site / "trl-1.0.0.dist-info" / name).unlink()
            (site / "trl-1.0.0.dist-info/WHEEL").write_text("Wheel-Version: 1.0\n")
        else:
            (site / "trl-1.0.0.dist-info").rename(site / "~rl-1.0.0.dist-info")

    result = check(change)
    assert result.code == 3
    (line,) = (line for line in result.json["unjudged"] if line.startswith("trl: its installation was interrupted"))
    assert info or line.endswith("pip install --force-reinstall --no-deps trl==1.0.0 brings back what it replaced")


def test_an_uninstall_that_stopped_behind_the_metadata_and_the_list_is_an_error(check):
    def change(site: Path) -> None:
        for path in (*(site / "trl-1.0.0.dist-info").iterdir(), site / "trl/__init__.py"):
            path.unlink()
        (site / "trl/models.py").write_text("")

    result = check(change)
    assert result.code == 1 and "trl 1.0.0 is incomplete: trl/__init__.py is not there" in told(result)


def test_requirements_behind_a_long_header_are_not_judged(check):
    def change(site: Path) -> None:
        path = site / "trl-1.0.0.dist-info/METADATA"
        path.write_text(path.read_text().rstrip() + f"\nX-More: {'x' * (1 << 20)}\nRequires-Dist: transformers>=99\n\n")

    result = check(change)
    assert result.code == 3
    assert any("trl" in line and "too long" in line for line in result.json["unjudged"])


#: What runs when Python starts, in a .pth file or in sitecustomize.py; FRONT is a folder with another torch.
LITERAL = ["import sys, os; sys.path.insert(0, 'FRONT')", "import sys; sys.path[0:0] = ['FRONT']"]
OPAQUE = [
    "import sys; sys.path = ['FRONT'] + sys.path",
    "import sys; sys.path.insert(1, 'FRONT')",
    "import sys; sys.path.append('FRONT'); sys.path.reverse()",
    "import sys; sys.path.insert(0, ''.join(['FRONT']))",
    "import sys; sys.modules['torch'] = None",
    "import sys; sys.meta_path.insert(0, type('F', (), {'find_spec': 1}))",
    'import os; exec("import sys; sys.path.sort()")',
    "import zz_front",
]
HARMLESS = [
    "import os; os.environ.setdefault('X', '1')",
    "import os; print(os.path.join('a', 'b'))",
    "import sys; sys.path.append('FRONT')",
    "import zz_harmless",
    "import _virtualenv",
    "import trl_hook",
    "import sys; sys.__plen = len(sys.path)",
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
    "enabled and __import__('_distutils_hack').add_shim(); ",
]


def starting(line: str, *files: str) -> Callable[[Path], object]:
    def change(site: Path) -> None:
        front = write(site.parent / "front", {"torch/__init__.py": "raise ImportError('not this one')\n"})
        hook = "import sys\nsys.meta_path.insert(0, object())\n"
        write(site, {"zz_front.py": hook, "zz_harmless.py": "x = 1\n", "trl_hook.py": hook})
        write(
            site, {"_virtualenv.py": f'"""Patches that are applied at runtime to the virtual environment."""\n{hook}'}
        )
        with (site / "trl-1.0.0.dist-info/RECORD").open("a") as record:
            record.write(_line(site, "trl_hook.py"))
        for file in files:
            (site / file).write_text(line.replace("FRONT", str(front)) + "\n")

    return change


STARTS = ("zz.pth", "sitecustomize.py")


@pytest.mark.parametrize("file", STARTS)
@pytest.mark.parametrize("line", LITERAL)
def test_a_torch_that_literal_code_puts_in_front_is_followed(live, line, file):
    result = live(starting(line, file))
    assert result.code == 1
    assert any("not this one" in message for message in told(result)), told(result)


@pytest.mark.parametrize("line", OPAQUE)
def test_code_that_may_put_anything_in_front_is_not_judged(live, line):
    result = live(starting(line, *STARTS))
    assert result.code == 3
    for file in STARTS:
        assert any(f"{file}: it runs code when Python starts" in text for text in result.json["unjudged"]), file


@pytest.mark.parametrize(
    ("member", "code"), [("torch/__init__.py", 3), ("random.py", 3), ("my_helper.py", 0), (None, 0)]
)
def test_a_zip_file_on_pythonpath_that_hides_a_module_is_not_judged(live, tmp_path, member, code):
    place = tmp_path / "packed"
    if member is None:
        place.write_text("this is none")
    else:
        with ZipFile(place, "w") as archive:
            archive.writestr(member, "")
    result = live(lambda site: None, PYTHONPATH=str(place))
    assert (result.code, [text for text in result.json["unjudged"] if str(place) not in text]) == (code, [])


def nothing(site: Path) -> None:
    for entry in list(site.iterdir()):
        shutil.rmtree(entry)


@pytest.mark.parametrize("change", [starting("import sys; sys.modules['torch'] = None", "zz.pth"), nothing])
def test_what_cannot_be_judged_there_is_not_green_as_a_facts_file(live, run, tmp_path, change):
    there = live(change)
    file = tmp_path / "facts.json"
    file.write_text(run("facts", "--no-cache", "--no-gpu", "--python", tmp_path / "env", "--format", "json").out)
    here = run("check", "--no-config", "--facts", file, "--format", "json")
    assert there.code == here.code == 3
    assert len(here.json["unjudged"]) == len(there.json["unjudged"]) > 0


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_code_at_start_is_not_accused(live, line):
    result = live(starting(line, *STARTS))
    assert (result.code, result.json["findings"], result.json["unjudged"]) == (0, [], [])


def test_startup_code_that_a_distribution_brings_is_its_own(live):
    def change(site: Path) -> None:
        starting("import sys; sys.meta_path.insert(0, 1)", "zz.pth")(site)
        with (site / "trl-1.0.0.dist-info/RECORD").open("a") as record:
            record.write(_line(site, "zz.pth"))

    assert live(change).code == 0


@pytest.mark.parametrize("file", ["trl/__init__.py", None])
def test_of_an_interrupted_uninstall_the_missing_files_are_told(check, file):
    def change(site: Path) -> None:
        gone("trl-1.0.0.dist-info/METADATA", "trl-1.0.0.dist-info/INSTALLER")(site)
        if file:
            (site / "trl/more.py").write_text("")
            gone(file)(site)

    result = check(change)
    messages = [one for one in told(result) if one.startswith("trl 1.0.0 is incomplete: trl/__init__.py")]
    assert (result.code, len(messages)) == ((1, 1) if file else (0, 0))


def test_a_version_that_none_can_compare_stops_transformers(live):
    result = live(lambda site: install(site, "tqdm", "???"))
    assert result.code == 1 and any("finds no version of tqdm" in message for message in told(result))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda code: code, 0),
        (lambda code: code[: len(code) // 2], 1),
        (lambda code: code[:16] + bytes(len(code) - 16), 1),
        (lambda code: code[:8] + bytes(4) + code[12:30], 0),  # of an older source: it is compiled again
        (lambda code: bytes(len(code)), 0),
        (lambda code: code[:10], 0),
    ],
)
def test_bytecode_that_is_cut_off_and_taken_first_is_an_error(live, change, code):
    def damage(site: Path) -> None:
        path = Path(py_compile.compile(str(site / "transformers/trainer.py"), doraise=True))
        path.write_bytes(change(path.read_bytes()))

    result = live(damage)
    assert (result.code, any("trainer.py" in message for message in told(result))) == (code, code == 1)


@pytest.mark.parametrize(("source", "code"), [("class Trainer: ...\n", 3), (None, 0)])
def test_bytecode_of_another_source_that_is_not_compared_cannot_be_judged(live, source, code):
    def change(site: Path) -> None:
        path = site / "transformers/trainer.py"
        released = path.read_text()
        path.write_text(source or released)
        py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        path.write_text(released)

    result = live(change)
    assert (result.code, any("is of another source" in text for text in result.json["unjudged"])) == (code, code == 3)


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        ("import PIL\n", True),
        ("def image():\n    import PIL\n", False),
        ("try:\n    import PIL\nexcept ImportError:\n    PIL = None\n", False),
        ("try:\n    from .pictures import PIL\nexcept ImportError:\n    PIL = None\n", False),
    ],
)
def test_what_no_package_requires_and_an_import_takes_must_be_whole(live, code, fails):
    def change(site: Path) -> None:
        files = {"PIL/__init__.py": "from . import _imaging\n", "PIL/_imaging.abi3.so": compiled("libc.so.6")}
        info = install(site, "pillow", "13.0.0", files=files)
        write(info, {"INSTALLER": "pip\n", "RECORD": "".join(_line(site, file) for file in files)})
        trainer = f"{code}class Trainer: ...\n"
        write(site, {"transformers/pictures.py": "import PIL\n", "transformers/trainer.py": trainer})
        (site / "PIL/_imaging.abi3.so").write_bytes(b"cut off")

    accused = [message for message in told(live(change)) if "pillow 13.0.0 is damaged" in message]
    assert bool(accused) == fails


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_packages_in_the_folder_of_another_python_are_not_found(live):
    result = live(lambda site: site.parent.rename(site.parents[1] / "python3.9"))
    assert result.code == 1
    assert [message for message in told(result) if "lie in lib/python3.9, where Python" in message]


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_of_two_folders_of_packages_the_one_of_the_interpreter_counts(live):
    def change(site: Path) -> None:
        (site.parents[1] / "python3.9/site-packages").mkdir(parents=True)
        (site.parents[2] / "pyvenv.cfg").write_text(
            f"home = {os.path.dirname(os.path.realpath(sys.executable))}\nversion = 3.9.2\n"
        )

    result = live(change)
    assert result.code == 0 and not [message for message in told(result) if "lie in lib/python3" in message]


@pytest.mark.skipif(sys.platform == "win32", reason="links")
@pytest.mark.parametrize(("python", "code"), [("python3.9", 1), ("python{0}.{1}", 0), ("python3", 0), ("python", 0)])
def test_packages_of_another_python_than_the_interpreter_leads_to(live, python, code):
    def change(site: Path) -> None:
        wheel = f"Wheel-Version: 1.0\nTag: cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-linux_x86_64\n"
        (site / "torch-2.13.0.dist-info/WHEEL").write_text(wheel)
        upgraded = site.parents[3] / python.format(*sys.version_info)
        shutil.copy(os.path.realpath(sys.executable), upgraded)
        (site.parents[2] / "bin/python").unlink()
        (site.parents[2] / "bin/python").symlink_to(upgraded)

    result = live(change)
    assert (result.code, any("Python 3.9 runs them" in message for message in told(result))) == (code, code == 1)
