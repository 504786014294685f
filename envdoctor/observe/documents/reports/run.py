"""The run that a report describes: commands, configurations and Python code in it, read as recipes."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records, Unknown, spell
from envdoctor.knowledge.matrix import Matrix
from envdoctor.models.names import is_repo_name
from envdoctor.observe.recipe.files import RecipeFile, command_parts, python_calls, with_formats
from envdoctor.observe.recipe.formats import Format, Formats
from envdoctor.observe.recipe.reading.document import read_document
from envdoctor.observe.recipe.reading.part import Part, RecipeError
from envdoctor.observe.recipe.recipe import Recipe, kinds_of, recipe_of
from envdoctor.text.message import Message, joined

#: Settings that make a configuration, its most lines, how many are read, and blocks of Python (each in a child).
_FEWEST, _LINES, _DOCUMENTS, _CODE = 3, 800, 8, 3
_FENCE = re.compile(r"\s{0,12}```+\s?(\w*)")
_PROMPT = re.compile(
    r"\s*(?:run sh: )?(?:\([\w.-]{1,40}\) ?)?"
    r"(?:[\w.-]{1,40}@[\w.-]{1,60}[: ][^#$]{0,100}[#$] |[$#%❯>] ?|! ?)?`?(?=[\w./\"])"
)
#: What a command line begins with: variables, then a launcher, an interpreter, or a path to one.
_COMMAND = re.compile(
    r"(?:(?:export\s+)?[A-Z_][A-Z0-9_]*=\S*\s+)*(?:\S{0,200}/)?"
    r"(?:python[\d.]*|accelerate|torchrun|deepspeed|srun|mpirun|nohup|uv|xtuner|tune|axolotl|trl|vllm|swift|megatron"
    r"|llamafactory-cli|lmf|openrlhf|bash)\s+\S"
)
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w*=\S")
_SETTING = re.compile(r"\s*(?:- )?[A-Za-z_][\w.]*:(?:\s.*)?|\s*#.*|\s*-\s[\w./-]+\s*")
_NAMED = re.compile(r"\s*(?:- )?[A-Za-z_][\w.]*:\s+\S.*")


class _Block(NamedTuple):
    """Lines of the report that stand together; ``start`` is the number of the first one."""

    start: int
    rows: Sequence[str]
    fenced: bool


def _in_place(block: _Block, keep: Collection[int] | None = None) -> str:
    """The lines at the places that they have in the report; all, or those with the numbers ``keep``."""
    return "\n" * (block.start - 1) + "\n".join(
        row if keep is None or number in keep else "" for number, row in enumerate(block.rows, block.start)
    )


def run_facts(
    lines: Sequence[str], doubtful: Collection[int], matrix: Matrix, name: str, installed: FactSet
) -> tuple[list[Fact], list[str]]:
    """``recipe.*``, ``recipe_key``, ``env.*`` and the model, each with the line that says it; no default of a
    framework, for a report may show a part of the run only. Lines with the numbers ``doubtful`` are left out. What two
    commands or configurations say differently is unknown; the keys of that come second."""
    formats = Formats(matrix.rows("recipe-formats", "format"))
    blocks = list(_blocks(lines, doubtful))
    parts = [part for block in blocks for part in _command_lines(block, formats, matrix)]
    parts += islice((part for block in blocks for part in _configurations(block, formats)), _DOCUMENTS)
    names = {name.rpartition(".")[2] for form in formats for name in form.names if not re.search(r"[ /*-]", name)}
    fenced = (block for block in blocks if block.fenced)
    code = (block for block in fenced if any(f"{called}(" in line for line in block.rows for called in names))
    for block in islice(code, _CODE):
        with suppress(RecipeError):  # cut off, or no Python
            parts += python_calls(_in_place(block).encode("utf-8", "replace"), formats)
    parts = [part for part in parts if _is_known_script(part, formats)]
    first = with_formats(parts, formats)
    if not first:
        return [], []

    def said_by(chosen: Sequence[tuple[Part, Format]]) -> Recipe:
        file = RecipeFile(name, tuple(chosen))
        return recipe_of([file], formats, matrix.registry, installed.value, name)

    recipe = said_by(first)
    if not any(fact.key == "recipe_key" and isinstance(fact.value, Records) and fact.value for fact in recipe.facts):
        return [], []
    facts = {fact.key: fact for fact in (*recipe.facts, *_model_facts(recipe)) if fact.source != "preset"}
    differing: list[str] = []
    for part in parts:
        form = formats.of_part(part)
        if form is None or form.name == "environment" or (part, form) in first:
            continue
        again = said_by([(part, form)])
        for fact in (*again.facts, *_model_facts(again)):
            before = facts.get(fact.key)
            if before is None or fact.key.startswith("recipe_") or fact.source == "preset":
                continue
            if before.value != fact.value and not isinstance(before.value, Unknown):
                facts[fact.key] = before._replace(value=differ(before, fact))
                differing.append(fact.key)
    return list(facts.values()), differing


def _is_known_script(part: Part, formats: Formats) -> bool:
    """Whether a script that no framework names takes the arguments of transformers; another one's are its own."""
    form = formats.of_part(part)
    if form is None or not part.program.endswith(".py") or form.named(part.program) is not None:
        return form is not None
    return form.framework in ("", "transformers")


def _model_facts(recipe: Recipe) -> Iterator[Fact]:
    model = recipe.model
    if model is None or not isinstance(model.value, str) or not model.value:
        return
    if model.value.count("/") == 1 and is_repo_name(model.value):
        yield Fact("model.repo", model.value, model.origin, "given")
        return
    # Of a folder of another machine its name is what counts.
    called = model.value.replace("\\", "/").rstrip("/").rpartition("/")[2]
    yield Fact("model.path", model.value, model.origin, "given")
    if called:
        yield Fact("model.name", called, model.origin, "given")


def _blocks(lines: Sequence[str], doubtful: Collection[int]) -> Iterator[_Block]:
    """What stands between fences, and what stands between those."""
    start, fenced = 1, False
    for number, line in enumerate([*lines, "```"], 1):
        if _FENCE.match(line) is None:
            continue
        if number > start and start not in doubtful:
            yield _Block(start, lines[start - 1 : number - 1], fenced)
        start, fenced = number + 1, not fenced


def _command_lines(block: _Block, formats: Formats, matrix: Matrix) -> list[Part]:
    """Command lines with the lines that continue them, and between fences the variables that are set beside them."""
    script: dict[int, str] = {}
    goes_on = found = False
    for number, line in enumerate(block.rows, block.start):
        plain = line[match.end() :] if (match := _PROMPT.match(line)) is not None else line.strip()
        begins = _COMMAND.match(plain) is not None
        option = line.lstrip(" \t*").startswith("--")
        if (goes_on or option) and number - 1 in script and not begins:
            script[number - 1] = script[number - 1].rstrip().rstrip("\\") + " \\"
            script[number] = line.strip(" \t\r*")
        elif begins:
            script[number], found = plain.rstrip("`"), True
        elif block.fenced and _ASSIGNMENT.match(line) is not None:
            script[number] = line.strip()
        goes_on = line.rstrip().endswith("\\") and number in script
    if not found:
        return []
    text = "\n" * (block.start - 1) + "\n".join(
        script.get(number, "") for number in range(block.start, block.start + len(block.rows))
    )
    with suppress(RecipeError):  # words that only look like a command
        return [part for part in command_parts(text, formats, kinds_of(matrix.registry)) if part.entries]
    return []


def _configurations(block: _Block, formats: Formats) -> Iterator[Part]:
    """YAML and JSON: what stands between fences, or lines of settings one below the other."""
    if block.fenced and 0 < len(block.rows) <= _LINES and block.rows[0].lstrip().startswith("{"):
        yield from _configuration(_in_place(block), formats)
        return
    run: set[int] = set()
    for number, line in enumerate([*block.rows, "."], block.start):
        if _SETTING.fullmatch(line) is not None or (run and not line.strip()):
            run.add(number)
            continue
        if len(run) <= _LINES and sum(1 for one in run if _NAMED.fullmatch(block.rows[one - block.start])) >= _FEWEST:
            yield from _configuration(_dedented(block, run), formats)
        run = set()


def _dedented(block: _Block, run: set[int]) -> str:
    """The lines without what all of them begin with, as a list of an env command has dashes."""
    lines = [block.rows[number - block.start] for number in run]
    begins = min((re.match(r"\s*(?:- )?", line)[0] for line in lines if line.strip()), key=len)  # type: ignore[index]
    text = _in_place(block, run)
    return re.sub(rf"(?m)^{re.escape(begins)}", "", text) if begins else text


def _configuration(text: str, formats: Formats) -> Iterator[Part]:
    try:
        part = Part("", read_document(text))
    except RecipeError:
        return
    form = formats.of_part(part)
    said = 0 if form is None else sum(1 for one in part.entries if (known := formats.find(form, one.key)) and known[1])
    if form is not None and (said >= _FEWEST or (said and form.row.get("marked_only"))):
        yield part


def differ(one: Fact, other: Fact) -> Unknown:
    """Return an unknown value, because two places say different things."""
    words = (Message("{} says {}", fact.origin, spell(fact.value)) for fact in (one, other))
    return Unknown(joined(words, ", "))
