"""Regenerate the rows of the version tables: python tools/refresh_tables.py FACTS_DIR [TABLES_DIR]

FACTS_DIR holds JSON files that were read from released packages (their names are in main). The head of each table is
written by hand and kept. Review the difference before committing: it is what changed in the world, or a mistake.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from packaging.version import Version

Json = dict[str, Any]
PYPI = "pkg:pypi/{}@{}"
GITHUB = "https://github.com/{}/blob/{}/{}"
RELEASE_MD = GITHUB.format("pytorch/pytorch", "main", "RELEASE.md")
GPU_LIST = GITHUB.format("huggingface/huggingface.js", "main", "packages/tasks/src/hardware-nvidia.ts")
#: Builds for aarch64 that are on the wheel index alone: torch, CUDA, architectures, level, source.
INDEX_AARCH64 = (
    (">=2.9.0,<=2.9.1", "12.8", "80 90 100 120", "reported", "https://github.com/OpenRAL/openral/pull/167"),
    ("==2.13.0", "12.6", "80 90", "declared", PYPI.format("torch", "2.13.0")),
)
A10G_THREAD = "https://github.com/facebookincubator/AITemplate/pull/279"


def toml(value: Any) -> str:
    """One value as TOML; JSON's text, numbers, booleans and lists of them are TOML already."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def rows(items: Iterable[Json]) -> str:
    """[[row]] tables; values that are None or empty are left out."""
    kept = ({key: value for key, value in item.items() if value not in (None, "", {}, [])} for item in items)
    return "\n\n".join("\n".join(["[[row]]", *(f"{key} = {toml(row[key])}" for key in row)]) for row in kept)


def specifier(text: str | None) -> str:
    """Clauses in reading order: lower bound, exclusions, upper bound; nothing declared gives ""."""
    clauses = [clause.strip() for clause in (text or "").split(",") if clause.strip(" *")]
    return ",".join(sorted(clauses, key=lambda clause: (clause[0] == "<", clause[0] == "!", clause)))


def pythons(tags: list[str]) -> str:
    """Specifier of the CPython minors with a wheel; free-threaded tags (cp313t) do not count."""
    minors = sorted(int(tag[3:]) for tag in tags if not tag.endswith("t"))
    assert minors == list(range(minors[0], minors[-1] + 1)), f"gap in the CPython tags {tags}"
    return f">=3.{minors[0]},<3.{minors[-1] + 1}"


def between(versions: list[str]) -> str:
    """Specifier of a run of versions, both ends read."""
    return f"=={versions[0]}" if len(versions) == 1 else f">={versions[0]},<={versions[-1]}"


def torch_builds(releases: list[Json]) -> Iterator[Json]:
    for release in releases:
        wheel, tags = release["pypi_linux_x86_64"], release["python_wheels"]
        index, friends = release["wheel_index"], release["companions"]
        # "org/repository path @commit (date)", or words: then RELEASE.md; no list: only the build on PyPI is known
        matrix = re.match(r"(\S+) (\S+) @(\w+)", index["source"] or "")
        listing = GITHUB.format(matrix[1], matrix[3], matrix[2]) if matrix else RELEASE_MD
        trust = {"cuda": "inferred" if "inferred" in index["channel"] else "declared"} if index["cuda"] else {}
        audio = {} if "exact pin" in friends["torchaudio_rule"] else {"torchaudio": "inferred"}
        yield {
            "key": release["version"],
            "python": pythons(tags["linux_x86_64"]),
            "python_aarch64": pythons(tags["linux_aarch64"]),
            "cuda": sorted({wheel["cuda"], *(index["cuda"] or [])}, key=Version),
            "open": [] if index["cuda"] else ["cuda"],
            "pypi_cuda": wheel["cuda"],
            "pypi_cuda_aarch64": wheel["cuda"] if release["pypi_linux_aarch64"]["cuda"] else "absent",
            "cxx11_abi": wheel["cxx11_abi"],
            "cxx11_abi_except": ["12.6"] if release["version"] == "2.6.0" else [],  # Dao-AILab/flash-attention#1644
            "glibc": ">=2.28" if "manylinux_2_28" in wheel["platform_tag_filename"] else "",
            "torchvision": friends["torchvision"][0],
            "torchaudio": friends["torchaudio"][0],
            "level": "observed",
            "levels": {**trust, **audio},
            "source": PYPI.format("torch", release["version"]),
            "sources": {"cuda": listing} if index["cuda"] else {},
        }


def arch_evidence(version: str, entry: Json) -> tuple[str, str]:
    """Level and source of one arch list, from the words of the facts."""
    confidence, source = entry["confidence"], entry["source"]
    if confidence.startswith("wheel") or confidence == "in-wheel table":
        return ("observed" if confidence.startswith("wheel") else "declared"), PYPI.format("torch", version)
    if branch := re.search(r"pytorch/builder branch (\S+) (\S+)", source):
        return "declared", GITHUB.format("pytorch/builder", branch[1], branch[2])
    if thread := re.search(r"dev-discuss\.pytorch\.org t/(\d+)", source):
        return "reported", f"https://dev-discuss.pytorch.org/t/{thread[1]}"
    commit = re.search(r"build_cuda\.sh commit (\w+)", source)
    level = "declared" if commit else "inferred" if confidence == "inferred" else "reported"
    revision = commit[1] if commit else f"v{version}"
    return level, GITHUB.format("pytorch/pytorch", revision, ".ci/manywheel/build_cuda.sh")


def torch_archs(releases: list[Json]) -> Iterator[Json]:
    """One row per minor, machine and CUDA; builds that were not released are left out."""
    found = []
    for release in releases:
        version, minor, arm = release["version"], release["minor"], release["pypi_linux_aarch64"]
        for cuda, entry in release["arch_by_cuda"].items():
            listed = cuda in (release["wheel_index"]["cuda"] or [cuda]) and entry.get("published", True)
            if listed and "test/experimental" not in entry["confidence"]:
                found.append((minor, "x86_64", cuda, entry["linux_x86_64"], *arch_evidence(version, entry), version))
        if arm["cuda"]:
            cuda, source = release["pypi_linux_x86_64"]["cuda"], PYPI.format("torch", version)
            found.append((minor, "aarch64", cuda, arm["arch_flags"], "observed", source, version))
    found.sort(key=lambda item: (Version(item[0]), item[1] != "x86_64", Version(item[2]), Version(item[-1])))
    for (_, machine, cuda, archs, level), run in groupby(found, key=lambda item: item[:5]):
        same = list(run)
        where = {"key": between([item[-1] for item in same]), "cuda": cuda, "machine": machine}
        yield {**where, "archs": archs, "level": level, "source": same[0][5]}
    for key, cuda, numbers, level, source in INDEX_AARCH64:
        archs = [f"sm_{number}" for number in numbers.split()]
        yield {"key": key, "cuda": cuda, "machine": "aarch64", "archs": archs, "level": level, "source": source}


def transformers_gates(releases: list[Json]) -> Iterator[Json]:
    def gates(release: Json) -> tuple[str, ...]:
        pins, peft = release["core_pins"], release["peft_min_integration"]
        texts = (release["torch_hard_gate"], release["requires_python"], pins["huggingface-hub"], pins["tokenizers"])
        return (*map(specifier, texts), f">={peft}" if peft else "")

    for texts, run in groupby(releases, key=gates):
        versions = [release["version"] for release in run]
        limits = dict(zip(("torch", "python", "huggingface_hub", "tokenizers", "peft"), texts, strict=True))
        levels = {name: "observed" for name in ("torch", "peft") if limits[name]}
        source = PYPI.format("transformers", versions[0])
        yield {"key": between(versions), **limits, "level": "declared", "levels": levels, "source": source}


def gpus(cards: list[Json]) -> Iterator[Json]:
    """One row per product with a known name; its memory variants (A100 40GB and 80GB) share a row."""
    products: dict[str, list[Json]] = {}
    for card in filter(lambda card: card["nvidia_smi_names"], cards):
        products.setdefault(re.sub(r"^Tesla |^GeForce | \(.*\)$| \d+GB.*$", "", card["name"]), []).append(card)
    for name, variants in products.items():
        tails = ("", " *", "-*") if variants[0]["kind"] == "data-center" else ("",)
        globs = [start + name + tail for start in ("", "* ") for tail in tails]
        aliases = [alias for card in variants for alias in card["nvidia_smi_names"]]
        pages = re.findall(r"https://[^\s;)]+", variants[0]["source"])
        vendor = [page for page in pages if "nvidia.com" in page]
        guessed = vendor and any(re.search(r"memory.* general knowledge", card["confidence"]) for card in variants)
        yield {
            "key": name,
            "names": globs + [alias for alias in aliases if not any(fnmatchcase(alias, glob) for glob in globs)],
            "cc": variants[0]["compute_capability"],
            "kind": variants[0]["kind"],
            "memory_gb": sorted({size for card in variants for size in card["memory_gb"]}),
            "level": "declared" if vendor else "reported",
            "levels": {"memory_gb": "inferred"} if guessed else {},
            "source": [*vendor, *pages, A10G_THREAD if name == "A10G" else GPU_LIST][0],
        }


def cuda_compilers(toolkits: list[Json]) -> Iterator[Json]:
    for toolkit in toolkits:
        gcc = toolkit["max_gcc"]
        # "… in PyPI wheel nvidia-cuda-crt==13.0.88", or torch's own table, read in a torch wheel
        wheel = re.search(r"PyPI wheel (\S+)==(\S+)", gcc["source"])
        torch = re.search(r"the torch (\S+) wheel", gcc["source"])
        source = PYPI.format(wheel[1], wheel[2]) if wheel else PYPI.format("torch", torch[1] if torch else "")
        yield {
            "key": toolkit["cuda"],
            "max_gcc": str(gcc["max_gcc_major"]),
            "archs": (toolkit["nvcc_archs"] or {}).get("sm", []),
            "level": "observed" if wheel else "declared",
            "source": source,
        }


def releases_of(packages: dict[str, list[Json]]) -> str:
    """[releases], [yanked] and [requires_python]; pre-releases only where a package has nothing else."""
    released, yanked, needs = ["[releases]"], ["[yanked]"], ["[requires_python]"]
    for name, unsorted in packages.items():
        items = sorted(unsorted, key=lambda item: Version(item["version"]))
        bad = [item["version"] for item in items if item.get("yanked") is not None]
        good = [item["version"] for item in items if item["version"] not in bad]
        listed = toml([v for v in good if not Version(v).is_prerelease] or good)[1:-1]
        released += [f"{name} = [", textwrap.indent(textwrap.fill(listed, 116), "  ") + ",", "]"]
        yanked += [f"{name} = {toml(bad)}"] * bool(bad)
        runs = groupby(items, key=lambda item: specifier(item["requires_python"]))
        spans = [{"versions": between([i["version"] for i in run]), "python": need} for need, run in runs if need]
        needs += [f"{name} = [", *(f"  {toml(span)}," for span in spans), "]"] * bool(spans)
    return "\n\n".join("\n".join(part) for part in (released, yanked, needs))


def main(facts: Path, tables: Path) -> None:
    names = ("torch_releases", "transformers_models", "stack_pins", "flash_attn", "gpus", "cuda_driver")
    torch, transformers, stack, flash, cards, toolkits = (
        json.loads((facts / f"{name}.json").read_text()) for name in names
    )
    packages = {"torch": torch["rows"], "transformers": transformers["releases"]}
    packages |= {name: package["rows"] for name, package in sorted(stack["packages"].items())}
    packages["flash-attn"] = [r | {"requires_python": r["python_requires"]} for r in flash["rows"] if r["on_pypi"]]
    for name, read, body in (
        ("torch-builds", torch, rows(torch_builds(torch["rows"]))),
        ("torch-archs", torch, rows(torch_archs(torch["rows"]))),
        ("transformers-gates", transformers, rows(transformers_gates(transformers["releases"]))),
        ("gpus", cards, rows(gpus(cards["rows"]))),
        ("cuda-compilers", toolkits, rows(cuda_compilers(toolkits["rows"]))),
        ("releases", stack, releases_of(packages)),
    ):
        path = tables / f"{name}.toml"
        head = re.split(r"(?m)^\[\[row\]\]|^\[releases\]", path.read_text(encoding="utf-8"))[0]
        head = re.sub(r"(?m)^as_of = .*$", f"as_of = {read['as_of']}", head)
        path.write_text(f"{head.rstrip()}\n\n{body}\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: refresh_tables.py FACTS_DIR [TABLES_DIR]")
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) == 3 else Path(__file__).parents[1] / "matrices/tables"))
