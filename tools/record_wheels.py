"""Record what envdoctor reads of released wheels: python tools/record_wheels.py FILE_NAME... [--into DIR]

FILE_NAME is a wheel of an index (``torchvision-0.28.0-cp311-cp311-manylinux_2_28_x86_64.whl``). Only the wanted members
are fetched. A folder under the wheel's name is written below fixtures/environments/wheels: names, versions and
requirements of METADATA, the compiled files that RECORD lists (for packages whose libraries envdoctor looks at), and
the assignments of version files. No code and no libraries are kept.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from package_index import Index

WHEELS = Path(__file__).parents[1] / "fixtures" / "environments" / "wheels"
HEADER = re.compile(r"(Metadata-Version|Name|Version|Requires-Python|Requires-Dist|Provides-Extra): ")
COMPILED = re.compile(r"[^,]+\.so(\.[\d.]+)?\Z")
#: Packages whose compiled files matter: torch itself, what it loads, and what is compiled against it.
LIBRARIES = re.compile(r"(nvidia_\w+|torch|torchvision|torchaudio|triton|xformers|vllm|bitsandbytes|flash_attn)\Z")


def members(name: str, wheel: ZipFile) -> Iterator[tuple[str, str]]:
    """Yield what is kept of a wheel, by path."""
    package, version, *_ = name.split("-")
    info = f"{package}-{version}.dist-info"
    header = wheel.read(f"{info}/METADATA").decode().partition("\n\n")[0]
    yield "METADATA", "".join(f"{line}\n" for line in header.splitlines() if HEADER.match(line)) + "\n"
    if not LIBRARIES.match(package):
        return
    there = wheel.namelist()
    kept: dict[str, str] = {}
    version_file = f"{package}/version.py"
    if version_file in there and (said := assignments(wheel.read(version_file).decode())):
        kept[version_file] = said
    if f"{package}/cpp_lib.json" in there:
        kept[f"{package}/cpp_lib.json"] = wheel.read(f"{package}/cpp_lib.json").decode()
    # functorch is a second top-level package of torch's wheel, with nothing that envdoctor looks at.
    compiled = [path for path in there if COMPILED.match(path) and not path.startswith("functorch/")]
    yield "RECORD", "".join(f"{path},,\n" for path in sorted([*compiled, *kept]))
    yield from kept.items()


def assignments(source: str) -> str:
    """Return the assignments of plain values in a module, without everything around them."""
    kept = [
        ast.get_source_segment(source, node)
        for node in ast.parse(source).body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant)
    ]
    return "".join(f"{text}\n" for text in kept)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what envdoctor reads of released wheels.")
    parser.add_argument("names", nargs="+", metavar="FILE_NAME")
    parser.add_argument("--into", type=Path, default=WHEELS)
    asked = parser.parse_args()
    index = Index()
    for name in asked.names:
        with index.wheel(name) as wheel:
            for path, text in members(name, wheel):
                target = asked.into / name.removesuffix(".whl") / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
