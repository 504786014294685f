"""A whole environment of files that somebody edited: METADATA, RECORD, version files, texts and compiled files."""

import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import choose, observe, one, write
from rewriting import rewrite
from rooms import observer

from envdoctor.facts import Records, Unknown, Value
from envdoctor.observe import EnvironmentUnreadable

extension = observer("extension")
libstdcxx = observer("libstdcxx")

ELF = Path(__file__).resolve().parents[3] / "fixtures" / "elf"
METADATA = b"""Metadata-Version: 2.4
Name: %s
Version: %s
Requires-Python: >=3.10,<4
Requires-Dist: numpy<3,>=1.24; python_version >= "3.9" and extra != "dev"
Requires-Dist: torch ==2.13.0 ; platform_machine == "x86_64"
Requires-Dist: flash-attn[fast] @ https://host/flash_attn-2.8.3+cu12torch2.8-cp311-cp311-linux_x86_64.whl
Provides-Extra: fast
License: a text
        of two lines

The description: Requires-Dist: nothing
"""
VERSION = b"""from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'  # a comment
git_version = 'a224ab24a7f4797f6707051257265e223e12576f'
hip: Optional[str] = None
"""
#: The files of the environment by their place: what each is like when nobody edited it.
FILES: dict[str, bytes] = {
    "torch-2.13.0.dist-info/METADATA": METADATA % (b"torch", b"2.13.0"),
    "torch-2.13.0.dist-info/RECORD": b"torch/version.py,sha256=x,1\ntorch/lib/libc10.so,,\n",
    "torch/version.py": VERSION,
    "torch/lib/libc10.so": (ELF / "libc10.so").read_bytes(),
    "torch/lib/libtorch_cpu.so": (ELF / "libtorch_cpu.so").read_bytes(),
    "xformers-0.0.35.dist-info/METADATA": METADATA % (b"xformers", b"0.0.35+cu130"),
    "xformers-0.0.35.dist-info/RECORD": b"xformers/_C.so,sha256=x,1\nxformers/b.so,,\nxformers/__init__.py,,\n",
    "xformers-0.0.35.dist-info/INSTALLER": b"pip\n",
    "xformers-0.0.35.dist-info/direct_url.json": b'{"url": "https://h/xformers-0.0.35+pt24cu121-cp39-none-any.whl"}',
    "xformers/cpp_lib.json": b'{"version": {"cuda": 1208, "hip": null, "torch": "2.9.1+cu128", "python": "3.10.19"}}',
    "xformers/_C.so": (ELF / "new-glibcxx.so").read_bytes(),
    "xformers/b.so": (ELF / "old-abi.so").read_bytes(),
    "deepspeed-0.19.8.dist-info/METADATA": METADATA % (b"deepspeed", b"0.19.8"),
    "deepspeed/git_version_info_installed.py": b"torch_info={'version': '2.1', 'cuda_version': '12.1'}\n",
    "deepspeed/ops/op.so": (ELF / "cuda.so").read_bytes(),
    "pip-25.0.egg-info/PKG-INFO": METADATA % (b"pip", b"25.0"),
    "packages.pth": b"import os\n/nowhere\n../packages\n",
}
TEXTS = [name for name in FILES if not name.endswith(".so")]
#: What breaks parsers of lines: ends of lines, quotes, markers, escapes, versions, bytes that are no UTF-8.
SYNTAX = (
    r"""\n \r \0 ' " = : ; [ <= == ~= ! 1!0 + .. - { } , .so, extra Version: Name: Requires-Dist: __version__ cuda="""
)
TOKENS = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(SYNTAX.encode().decode("unicode_escape").encode("latin-1").split(b" ")),
    st.sampled_from([b"\xff\xfe", b"(" * 50, b"a" * 300, b"9" * 400, b"\x1b[2J", b"\xe2\x80\xae", b"\\"]),
)
EDIT = st.tuples(st.integers(0, 3000), st.integers(0, 40), TOKENS)
EDITS = st.lists(st.tuples(st.sampled_from(TEXTS) | st.sampled_from(list(FILES)), EDIT), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment; each case writes the files it edits, and puts them back. What is imported and read once for
    all was so: it is no cost of the one that is measured."""
    folder = write(tmp_path_factory.mktemp("hostile") / "packages", FILES)
    look(folder)
    return folder


def look(folder: Path) -> Value:
    """Everything that is observed of the environment's files."""
    try:
        layout = choose(path=folder)
        facts = observe(layout).seen
    except EnvironmentUnreadable as error:
        return str(error)
    value = one(extension, layout, facts).value
    assert isinstance(value, (Records, Unknown))
    one(libstdcxx, layout, {"extension": value}, environ={"LD_LIBRARY_PATH": str(folder / "torch" / "lib")})
    return value


def fuzz(folder: Path, edits: list[tuple[str, tuple[int, int, bytes]]]) -> None:
    changed: dict[str, bytes] = {}
    for name, (place, removed, token) in edits:
        content = changed.get(name, FILES[name])
        place %= len(content) + 1
        changed[name] = content[:place] + token + content[place + removed :]
    for name, content in changed.items():
        rewrite(folder / name, content)
    try:
        look(folder)
    finally:
        for name in changed:
            rewrite(folder / name, FILES[name])


def bounded(packages: Path, edits: list[Any]) -> None:
    """Facts of an edited environment, in bounded memory."""
    if sum(place for _, (place, _, _) in edits) % 8:  # counting memory takes four times as long: it is done for some
        fuzz(packages, edits)
        return
    tracemalloc.start()
    try:
        fuzz(packages, edits)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


#: ``benchmarks/hostile.py`` edits 1,500.
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EDITS)
def test_an_edited_environment_gives_facts_in_bounded_memory(packages: Path, edits: list[Any]) -> None:
    bounded(packages, edits)


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of Linux")
def test_files_of_many_gigabytes_are_read_in_part_by_a_process_that_could_not_hold_one(
    packages: Path, tmp_path: Path
) -> None:
    """Sparse files of 16 GiB that begin like the real ones, all together and each alone, in 512 MiB and 20 s."""
    for number, huge in enumerate([FILES, *([name] for name in FILES)]):
        folder = shutil.copytree(packages, tmp_path / str(number))
        for file in huge:
            os.truncate(folder / file, 16 << 30)
    arguments = ["check", "--no-config", "--no-cache", "--format", "json", "--path"]
    command = f"""import sys, resource as r
r.setrlimit(r.RLIMIT_AS, (512 << 20,) * 2)
r.setrlimit(r.RLIMIT_CPU, (20, 20))
from envdoctor.cli.main import main
for folder in sys.argv[1:]:
    print(folder, file=sys.stderr)
    assert main([*{arguments}, folder]) in (0, 1, 3)
"""
    argv = [sys.executable, "-c", command, *tmp_path.iterdir()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
