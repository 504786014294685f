"""Published model code as folders: two sides of a pair, from wheels of transformers or from clones of repositories.

No code of others is kept in this repository. Wheels come from pip's index, histories from clones that the user made
(``git clone https://github.com/OWNER/NAME CLONES/OWNER+NAME``); both end as folders that look like a repository on the
Hub: Python files side by side, imports that leave the folder made absolute, and a ``config.json`` whose ``auto_map``
names the class that trains.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

CODE = re.compile(r"(modeling|configuration|tokenization)_\w+\.py|model_minimind\w*\.py")
JUDGED_BEFORE = re.compile(r"chatglm|baichuan2|qwen[-_/]?(7|72)b|falcon|minicpm|gpt_oss|granite", re.IGNORECASE)
REPOSITORIES = (
    "AIDC-AI/Ovis",
    "Beomi/InfiniTransformer",
    "CStanKonrad/long_llama",
    "FlagOpen/FlagEmbedding",
    "InternLM/InternEvo-HFModels",
    "InternLM/InternLM",
    "OpenGVLab/InternVL",
    "OpenMOSS/MOSS",
    "SmallDoges/small-doge",
    "Tele-AI/Telechat",
    "allenai/OLMo",
    "baichuan-inc/Baichuan-7B",
    "deepseek-ai/DeepSeek-VL2",
    "deepseek-ai/Janus",
    "fla-org/flash-linear-attention",
    "inclusionAI/Ling",
    "jingyaogong/minimind",
    "jquesnelle/yarn",
    "mosaicml/llm-foundry",
    "sunzeyeah/RLHF",
)
MORE = (
    "AI4Bharat/IndicTrans2",
    "NVlabs/VILA",
    "X-PLUG/mPLUG-Owl",
    "fxmeng/TransMLA",
    "haotian-liu/LLaVA",
    "pjlab-sys4nlp/llama-moe",
)
ENDINGS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ChatModel", "Model")
MOST_LINES = 100
MOST_BYTES = 4 << 20


class Place(NamedTuple):
    """Where a pair lies: transformers or OWNER/NAME, two releases or commits, the folder, and what it is called."""

    source: str
    old: str
    new: str
    path: str

    @property
    def name(self) -> str:
        """Return a name for folders and tables that holds nothing but letters, digits, dots and dashes."""
        short = [part[:10] for part in (self.old, self.new)]
        return re.sub(r"[^\w.-]+", "-", f"{self.source}-{self.path}-{short[0]}-{short[1]}")


Files = dict[str, str]


def git(clone: Path, *arguments: str) -> str:
    """Return what git prints about a clone, bare or not; an error of git ends the benchmark."""
    where = clone if (clone / "HEAD").exists() else clone / ".git"
    if (clone / "repo" / "HEAD").exists():
        where = clone / "repo"
    run = subprocess.run(["git", "--git-dir", str(where), *arguments], capture_output=True, check=True)
    return run.stdout.decode("utf-8", "replace")


def wheel(release: str, cache: Path) -> Path:
    """Return the wheel of a release of transformers, downloaded by pip where the cache lacks it."""
    held = cache / "wheels" / f"transformers-{release}-py3-none-any.whl"
    if not held.exists():
        asked = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d"]
        subprocess.run([*asked, str(held.parent), f"transformers=={release}"], check=True)
    return held


def of_wheel(release: str, path: str, cache: Path) -> Files:
    """Return the modeling and configuration files of a model type in a release; none where it lacks the type."""
    files: Files = {}
    with zipfile.ZipFile(wheel(release, cache)) as archive:
        for kind in ("configuration", "modeling"):
            member = f"transformers/{path}/{kind}_{Path(path).name}.py"
            if member in archive.NameToInfo and archive.NameToInfo[member].file_size < MOST_BYTES:
                files[Path(member).name] = archive.read(member).decode()
    return files


def of_commit(clone: Path, commit: str, path: str) -> Files:
    """Return the small Python, JSON and template files of a folder at a commit, as the Hub would hold them."""
    files: Files = {}
    for row in git(clone, "ls-tree", "-l", commit, f"{path}/" if path != "." else "./").splitlines():
        about, _, name = row.partition("\t")
        kind, size = about.split()[1], about.split()[3]
        wanted = Path(name).suffix in (".py", ".json", ".jinja") and Path(name).name != "__init__.py"
        if kind == "blob" and wanted and size.isdigit() and int(size) < MOST_BYTES:
            files[Path(name).name] = git(clone, "show", f"{commit}:{name}")
    return files


def absolute(text: str, package: list[str]) -> str:
    """Return code whose imports from folders above are absolute: ``transformers.utils`` instead of ``...utils``."""

    def spelled(match: re.Match[str]) -> str:
        kept = package[: len(package) - len(match[2]) + 1]
        return f"{match[1]}{'.'.join([*kept, *filter(None, [match[3]])])} import" if kept else match[0]

    return re.sub(r"(?m)^(\s*from )(\.{2,})([\w.]*) import", spelled, text)


def classes(text: str) -> Iterator[ast.ClassDef]:
    """Yield the classes at the top of a module; nothing where it cannot be parsed."""
    try:
        yield from (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    except SyntaxError:
        return


def trains(node: ast.ClassDef) -> bool:
    """Return whether a class has a ``forward`` that takes labels."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "forward":
            return any(one.arg == "labels" for one in item.args.args + item.args.kwonlyargs)
    return False


def target(old: Files, new: Files) -> tuple[str, str] | None:
    """Return the file and class that train and are on both sides, a changed file first; none where there is none."""
    after = {(name, node.name) for name, text in new.items() if name.endswith(".py") for node in classes(text)}
    chosen = []
    for name, text in old.items():
        for node in classes(text) if name.endswith(".py") else ():
            ending = next((place for place, one in enumerate(ENDINGS) if node.name.endswith(one)), None)
            if ending is not None and (name, node.name) in after and trains(node):
                chosen.append((ending, old[name] == new[name], name, node.name))
    return min(chosen)[2:] if chosen else None


def defaults(node: ast.ClassDef) -> dict[str, object]:
    """Return what a configuration class sets by itself, of the values that JSON can hold."""
    values: dict[str, object] = {}
    for item in node.body:
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            pairs = [(item.targets[0].id, item.value)]
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            pairs = [(item.target.id, item.value)]
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            given = item.args.args[len(item.args.args) - len(item.args.defaults) :]
            pairs = [(one.arg, value) for one, value in zip(given, item.args.defaults, strict=True)]
        for name, value in pairs:
            try:
                held = ast.literal_eval(value) if value is not None else None
                json.dumps(held)
            except (ValueError, TypeError):
                continue
            if held is not None:
                values[name] = held
    return values


def configuration(files: Files, where: tuple[str, str]) -> str:
    """Return a config.json: the defaults of the configuration class and an ``auto_map`` to the class that trains."""
    module, name = where
    about: dict[str, object] = {"architectures": [name], "model_type": "revision_pair"}
    auto = {"AutoModelForCausalLM": f"{module.removesuffix('.py')}.{name}"}
    stem = module.removesuffix(".py").removeprefix("modeling_")
    homes = sorted(files, key=lambda one: (one != f"configuration_{stem}.py", one != module, one))
    for home in homes:
        if home == module or home.startswith("configuration_"):
            found = [node for node in classes(files[home]) if node.name.endswith("Config")]
            if found:
                about |= {k: v for k, v in defaults(found[-1]).items() if k not in about or k == "model_type"}
                auto["AutoConfig"] = f"{home.removesuffix('.py')}.{found[-1].name}"
                break
    return json.dumps({**about, "auto_map": auto}, indent=2) + "\n"


def sides(place: Place, cache: Path, clones: Path) -> tuple[Files, Files]:
    """Return both sides of a pair; the one config.json that is made up stands on both."""
    if place.source == "transformers":
        old, new = (of_wheel(release, place.path, cache) for release in (place.old, place.new))
        package = ["transformers", *place.path.split("/")]
    else:
        clone = clones / place.source.replace("/", "+")
        old, new = (of_commit(clone, commit, place.path) for commit in (place.old, place.new))
        package = [part for part in place.path.split("/") if part not in (".", "src")]
    old, new = ({name: absolute(text, package) for name, text in side.items()} for side in (old, new))
    where = target(old, new)
    if where and not ("config.json" in old or "config.json" in new):
        old["config.json"] = new["config.json"] = configuration(old, where)
    return old, new


def write(files: Files, folder: Path) -> None:
    """Write a side into a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def difference(old: Files, new: Files, context: int = 3) -> list[str]:
    """Return the unified diff of two sides, file by file in order of name."""
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        left, right = (side.get(name, "").splitlines() for side in (old, new))
        lines += unified_diff(left, right, f"a/{name}", f"b/{name}", lineterm="", n=context)
    return lines


def changed_lines(old: Files, new: Files) -> int:
    """Return how many lines of code came or went."""
    code = [{name: text for name, text in side.items() if name.endswith(".py")} for side in (old, new)]
    return sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in difference(code[0], code[1], 0))


def steps() -> list[tuple[str, str]]:
    """Return the steps between minor releases of transformers from 4.30 to 5.24, the last release of each, from pip."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "transformers"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    last: dict[tuple[int, ...], str] = {}
    for release in re.findall(r"\d+\.\d+\.\d+", text.partition("versions:")[2].partition("\n")[0]):
        last.setdefault(tuple(map(int, release.split(".")[:2])), release)
    kept = [last[minor] for minor in sorted(last) if (4, 30) <= minor <= (5, 24)]
    return list(pairwise(kept))


def drawn(cache: Path, clones: Path, seed: int, count: int) -> Iterator[Place]:
    """Yield ``count`` pairs of wheels, of four model types a step between releases at most, drawn with a seed."""
    chance, releases = random.Random(seed), steps()
    chance.shuffle(releases)
    given = 0
    for old, new in releases:
        if given == count:
            return
        with zipfile.ZipFile(wheel(old, cache)) as archive:
            members = [Path(name).parent.parts[1:] for name in archive.namelist() if "/modeling_" in name]
        types = sorted({"/".join(parts) for parts in members if parts[:1] == ("models",) and len(parts) == 2})
        chance.shuffle(types)
        taken = 0
        for path in types:
            place = Place("transformers", old, new, path)
            if given < count and taken < 4 and not JUDGED_BEFORE.search(path) and fits(place, cache, clones):
                taken, given = taken + 1, given + 1
                yield place


def drawn_commits(cache: Path, clones: Path, seed: int, count: int, skip: Collection[Place] = ()) -> Iterator[Place]:
    """Yield ``count`` pairs of a commit and its parent, in turn from repositories in random order.

    Where pairs are skipped, because an earlier draw has them, more repositories take part.
    """
    chance = random.Random(seed)
    pools = []
    for source in sorted({*REPOSITORIES, *(MORE if skip else ())}):
        clone = clones / source.replace("/", "+")
        log = git(clone, "log", "--no-merges", "--format=%x00%H %P", "--no-renames", "--name-only", "HEAD", "--")
        pool = set()
        for entry in log.split("\0")[1:]:
            head, *names = entry.split("\n")
            for name in names:
                if CODE.fullmatch(Path(name).name) and len(head.split()) == 2 and not JUDGED_BEFORE.search(name):
                    new, old = head.split()
                    pool.add(Place(source, old, new, str(Path(name).parent)))
        ordered = sorted(pool)
        chance.shuffle(ordered)
        pools.append(iter([one for one in ordered if "test" not in one.path and one not in skip]))
    chance.shuffle(pools)
    seen, had = set[str](), {"\n".join(difference(*sides(one, cache, clones), context=0)) for one in skip}
    while pools and len(seen) < count:
        for pool_left in list(pools):
            place = next((one for one in pool_left if fits(one, cache, clones)), None)
            if place is None:
                pools.remove(pool_left)
                continue
            change = "\n".join(difference(*sides(place, cache, clones), context=0))
            if len(seen) < count and change not in seen | had:
                seen.add(change)
                yield place


def fits(place: Place, cache: Path, clones: Path) -> bool:
    """Return whether both sides can train, something changed, and a person can read the change in a minute.

    Of transformers, only types that train as a language model count: one release holds hundreds of other models.
    """
    try:
        old, new = sides(place, cache, clones)
    except subprocess.CalledProcessError:  # a clone that lacks objects
        return False
    where = target(old, new)
    speaks = where is not None and (place.source != "transformers" or where[1].endswith(ENDINGS[:2]))
    return speaks and 0 < changed_lines(old, new) <= MOST_LINES
