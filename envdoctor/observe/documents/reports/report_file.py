"""Reading a pasted report: any mixture of what tools print, what people write, tracebacks and logs."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value, strange_name
from envdoctor.facts.values import ABSENT, Fact, Origin, Records, Unknown, Value, spell
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim, gpu_fact
from envdoctor.observe.documents.reports.lines import standing, traces
from envdoctor.observe.documents.tracebacks import visible
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.config import words_of
from envdoctor.observe.model.names import is_repo_name
from envdoctor.observe.recipe.document import Part, RecipeError, read_document
from envdoctor.observe.recipe.files import RecipeFile
from envdoctor.observe.recipe.formats import Format, Formats
from envdoctor.observe.recipe.parts import command_parts, python_calls
from envdoctor.observe.recipe.recipe import Recipe, recipe_of
from envdoctor.system.documents import decoded, read_named
from envdoctor.system.files import because_of
from envdoctor.system.message import Message, joined
from envdoctor.versions.pep440 import dotted

# The run that a report describes: commands, configurations and Python code in it, read as recipes.

#: Settings that make a configuration, its most lines, how many are read, and blocks of Python (each in a child).
_FEWEST, _LONGEST_BLOCK, _DOCUMENTS, _CODE = 3, 800, 8, 3
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
#: Frameworks whose arguments any script may take.
_OF_ANY_SCRIPT = ("", "transformers")
_KEY_AND_VALUE = re.compile(r"\s*(?:- )?[A-Za-z_][\w.]*:\s+\S.*")


class _Block(NamedTuple):
    """Lines of the report that stand together; ``start`` is the number of the first one."""

    start: int
    rows: Sequence[str]
    fenced: bool


def _in_place(block: _Block, keep: Collection[int] | None = None) -> str:
    """Return the lines at the places that they have in the report; all, or those with the numbers ``keep``."""
    rows = (row if keep is None or at in keep else "" for at, row in enumerate(block.rows, block.start))
    return "\n" * (block.start - 1) + "\n".join(rows)


def _run_facts(
    lines: Sequence[str], doubtful: Collection[int], formats: Formats, name: str, installed: FactSet
) -> tuple[list[Fact], list[str], list[Message]]:
    """Return ``recipe.*``, ``recipe_key``, ``env.*`` and the model, each with its line; the keys that two commands or
    configurations say differently, which are unknown; and sentences about files that are named and not shown. A report
    may show a part of the run only: of a framework's defaults those that switch something on are guesses, and the
    others do not count. Lines with the numbers ``doubtful`` are left out."""
    blocks = list(_blocks(lines, doubtful))
    parts = [part for block in blocks for part in _command_lines(block, formats)]
    parts += islice((part for block in blocks for part in _configurations(block, formats)), _DOCUMENTS)
    names = {name.rpartition(".")[2] for form in formats for name in form.names if not re.search(r"[ /*-]", name)}
    fenced = (block for block in blocks if block.fenced)
    code = (block for block in fenced if any(f"{function}(" in line for line in block.rows for function in names))
    for block in islice(code, _CODE):
        with suppress(RecipeError):  # cut off, or no Python
            parts += python_calls(_in_place(block).encode("utf-8", "replace"), formats)
    # A script that no framework names takes the arguments of transformers; another one's are its own.
    of = [(part, form) for part in parts if (form := formats.of_part(part)) is not None]
    parts = [
        part
        for part, form in of
        if not part.program.endswith(".py") or form.named(part.program) is not None or form.framework in _OF_ANY_SCRIPT
    ]
    first = formats.of_parts(parts)
    if not first:
        return [], [], []

    def said_by(chosen: Sequence[tuple[Part, Format]], missing: Sequence[tuple[str, Origin, str]] = ()) -> Recipe:
        file = RecipeFile(name, tuple(chosen), tuple(missing))
        return recipe_of([file], formats, installed.value, name)

    # What a command starts may be the configuration that is shown, and what either names DeepSpeed's file that is.
    shown = {form.name for part, form in first if not part.program}
    naming = (pair for pair in first if shown.isdisjoint(["deepspeed", pair[1].name if pair[0].program else ""]))
    unseen = formats.named_files(naming)
    recipe = said_by(first, [(str(entry.value), entry.origin(name), Message("is not there")) for entry in unseen])
    if not any(fact.key == "recipe_key" and isinstance(fact.value, Records) and fact.value for fact in recipe.facts):
        return [], [], []
    facts = {fact.key: fact for fact in (*recipe.facts, *_model_facts(recipe)) if fact.source != "preset"}
    switched_on = (fact for fact in recipe.facts if fact.source == "preset" and fact.value is True)
    facts |= {fact.key: fact._replace(source="assumed") for fact in switched_on}
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
            values = before.value if isinstance(before.value, tuple) else ()
            if isinstance(fact.value, tuple) and set(fact.value) < set(values):  # the same command, cut off
                continue
            if before.value != fact.value and not isinstance(before.value, Unknown):
                facts[fact.key] = before._replace(value=_differ(before, fact))
                differing.append(fact.key)
    text = "{} names {}, which {}: what it sets is not known"
    notes = [Message(text, place, file, reason) for file, place, reason in recipe.missing]
    return list(facts.values()), differing, notes


def _model_facts(recipe: Recipe) -> Iterator[Fact]:
    model = recipe.model
    if model is None or not isinstance(model.value, str) or not model.value:
        return
    if model.value.count("/") == 1 and is_repo_name(model.value):
        yield Fact("model.repo", model.value, model.origin, "given")
        return
    # Of a folder of another machine its name is what counts.
    name = model.value.replace("\\", "/").rstrip("/").rpartition("/")[2]
    yield Fact("model.path", model.value, model.origin, "given")
    if name:
        yield Fact("model.name", name, model.origin, "given")


def _blocks(lines: Sequence[str], doubtful: Collection[int]) -> Iterator[_Block]:
    """Yield what stands between fences, and what stands between those."""
    start, fenced = 1, False
    for number, line in enumerate([*lines, "```"], 1):
        if _FENCE.match(line) is None:
            continue
        if number > start and start not in doubtful:
            yield _Block(start, lines[start - 1 : number - 1], fenced)
        start, fenced = number + 1, not fenced


def _command_lines(block: _Block, formats: Formats) -> list[Part]:
    """Command lines with the lines that continue them, and between fences the variables that are set beside them."""
    script: dict[int, str] = {}
    goes_on = has_command = False
    for number, line in enumerate(block.rows, block.start):
        plain = line[match.end() :] if (match := _PROMPT.match(line)) is not None else line.strip()
        begins = _COMMAND.match(plain) is not None
        option = line.lstrip(" \t*").startswith("--")
        if (goes_on or option) and number - 1 in script and not begins:
            script[number - 1] = script[number - 1].rstrip().rstrip("\\") + " \\"
            script[number] = line.strip(" \t\r*")
        elif begins:
            script[number], has_command = plain.rstrip("`"), True
        elif block.fenced and _ASSIGNMENT.match(line) is not None:
            script[number] = line.strip()
        goes_on = line.rstrip().endswith("\\") and number in script
    if not has_command:
        return []
    rows = [script.get(number, "") for number, _ in enumerate(block.rows, block.start)]
    text = _in_place(block._replace(rows=rows))
    with suppress(RecipeError):  # words that only look like a command
        return [part for part in command_parts(text, formats) if part.entries]
    return []


def _configurations(block: _Block, formats: Formats) -> Iterator[Part]:
    """YAML and JSON: what stands between fences, or lines of settings one below the other."""
    is_whole = block.fenced and len(block.rows) <= _LONGEST_BLOCK
    whole = list(_configuration(_in_place(block), formats)) if is_whole else []
    if whole or (block.fenced and block.rows[0].lstrip().startswith("{")):
        yield from whole
        return
    run: set[int] = set()
    for number, line in enumerate([*block.rows, "."], block.start):
        if _SETTING.fullmatch(line) is not None or (run and not line.strip()):
            run.add(number)
            continue
        settings = sum(1 for at in run if _KEY_AND_VALUE.fullmatch(block.rows[at - block.start]))
        if len(run) <= _LONGEST_BLOCK and settings >= _FEWEST:
            yield from _configuration(_dedented(block, run), formats)
        run = set()


def _dedented(block: _Block, run: set[int]) -> str:
    """Return the lines without what all of them begin with, as a list of an env command has dashes."""
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
    if form is not None:
        lookups = (formats.find(form, entry.key) for entry in part.entries)
        count = sum(1 for lookup in lookups if lookup is not None and lookup[1])
        yield from [part] if count >= _FEWEST or (count and form.row.get("marked_only")) else []


def _differ(first: Fact, other: Fact) -> Unknown:
    """Return an unknown value, because two places say different things."""
    words = (Message("{} says {}", fact.origin, spell(fact.value)) for fact in (first, other))
    return Unknown(joined(words, ", "))


_LARGEST = 64 * 1024 * 1024
#: Characters and lines that are read, characters of a line, and how many unread lines are named.
_CHARACTERS, _LINES, _LINE, _NAMED = 1 << 21, 20_000, 500, 4
_LONGEST_COMMAND = 8000
_QUOTE = re.compile(r"\A\s{0,8}(?:> ?){1,5}")
_WIDE = str.maketrans("：，、（）＝", ":,,()=")


class _ReportError(ObservationError):
    """Nothing can be taken from it; the message says why. ``usage`` is False for a text in which no fact stands."""


class _ReadReport(NamedTuple):
    """The facts, sentences about what was not read, and the text."""

    facts: FactSet
    notes: tuple[Message, ...]
    text: str = ""


def read_report(place: Path, matrix: Matrix, path: str) -> _ReadReport:
    """Return the facts of the text at ``place``, which the user calls ``path`` (``-``: standard input).

    Raises :class:`_ReportError`.
    """
    try:
        data = read_named(place, path, _LARGEST)
    except OSError as error:
        raise _ReportError("{}: cannot be read: {}", path, because_of(error)) from None
    if data is None:
        raise _ReportError("{}: larger than {} MiB, not read", path, _LARGEST // 1024 // 1024)
    # Terminals of Windows write UTF-16 and code pages.
    text = decoded(data, "replace")
    report = report_facts(text, matrix, "report" if path == "-" else path.replace("\\", "/").rpartition("/")[2])
    if not list(report.facts):
        sentence = Message("{}: no version, GPU or system could be read in it", path)
        nothing = _ReportError(joined([sentence, *report.notes]))
        nothing.usage, nothing.text = False, text
        raise nothing
    return report._replace(text=text)


def report_facts(text: str, matrix: Matrix, name: str) -> _ReadReport:
    """Return the facts of a text; ``name`` stands in their origins (``report:12``)."""
    lines = re.split(r"\r\n?|\n", text[:_CHARACTERS])
    cut = len(lines) > _LINES or len(text) > _CHARACTERS
    lines = lines[:_LINES]
    plain = [_QUOTE.sub("", visible(line[:_LINE])).translate(_WIDE).rstrip() for line in lines]
    formats = Formats(matrix)
    claimed, sentences, speaking, silenced = standing(plain, matrix, formats)
    # What paths say counts where no line does.
    keys = {"python" if claim.key.startswith("python.") else claim.key for claim in claimed}
    paths = (claim for claim in traces(plain) if claim.key.removesuffix(".minor") not in keys)
    claims = [claim for claim in (*claimed, *paths) if not claim.key.startswith(("gpu", "smi."))]
    facts = FactSet(_checked(_facts_of(claims, name), matrix))
    if (gpu := gpu_fact(claimed, name)) is not None:
        facts.add(gpu)
    commands = [_QUOTE.sub("", visible(line[:_LONGEST_COMMAND])) for line in lines]
    run, differing, unread = _run_facts(commands, silenced, formats, name, facts)
    differing += [setting.key for setting in run if setting.key in facts]
    for setting in run:  # what the lines say stands, unless the run that is shown says something else
        before = facts.get(setting.key)
        if setting.key not in facts:
            facts.add(setting)
        elif before.value != setting.value and not isinstance(before.value, Unknown):
            facts.add(before._replace(value=_differ(before, setting)))
    facts.update(_facts_of_sentences(sentences, facts, name))
    notes = [Message("{}: only the first {} lines were read", name, len(lines))] if cut else []
    notes += unread[:_NAMED]
    notes += [
        Message("{}: {}", fact.key.removeprefix("pkg."), fact.value.reason)
        for fact in facts
        if isinstance(fact.value, Unknown) and (not fact.key.startswith("recipe.") or fact.key in differing)
    ]
    skipped = [(number, key) for number, key in speaking if key not in facts]
    for number, key in skipped[:_NAMED]:
        notes.append(Message("line {} of {} speaks of {} and was not read", number, name, key.removeprefix("pkg.")))
    if len(skipped) > _NAMED:
        notes.append(Message("{} more lines of {} that look like facts were not read", len(skipped) - _NAMED, name))
    return _ReadReport(facts, tuple(notes))


def _facts_of(claims: Iterable[Claim], name: str) -> Iterator[Fact]:
    """Yield one fact for each key, with the line that says most about it (``report:12``)."""
    by_key: dict[str, list[Claim]] = {}
    for claim in claims:
        by_key.setdefault(claim.key, []).append(claim)
    for key, several in by_key.items():
        best = several[0]
        value: Value = best.value
        for other in several[1:]:
            both = _joined(best, other)
            if both is None:
                words = (Message("line {} of {} says {}", each.line, name, spell(each.value)) for each in (best, other))
                value = Unknown(joined(words, ", "))
                break
            best, value = both, both.value
        else:
            if best.partial:
                text = "line {} of {} says {}, which may be any {}.x"
                value = Unknown(Message(text, best.line, name, best.value, best.value))
        yield Fact(key, value, Origin(name, best.line), "given")


def _facts_of_sentences(claims: Sequence[Claim], facts: FactSet, name: str) -> Iterator[Fact]:
    """Yield what sentences say and nothing else in the report does; unknown where two of them differ. Of several batch
    sizes, which people try, the largest is the one that matters."""
    settings = [claim for claim in claims if claim.key.startswith(("recipe.", "os."))]
    sizes = [claim for claim in settings if claim.key == "recipe.batch_size"]
    largest = max(sizes, key=lambda claim: float(str(claim.value)), default=None)
    settings = [claim for claim in settings if claim not in sizes or claim is largest]
    candidates = [*_facts_of(settings, name), gpu_fact(claims, name)]
    yield from (fact._replace(source="told") for fact in candidates if fact is not None and fact.key not in facts)
    models = [claim for claim in claims if claim.key.startswith("model.")]
    if models and all(fact.is_computed for fact in facts.below("model.")):
        # Of GLM-4-9B and glm-4-9b-chat-hf the second says more.
        best = max(models, key=lambda claim: (len(words_of(str(claim.value))), claim.key == "model.repo"))
        words = words_of(str(best.value))
        other = next((claim for claim in models if (less := words_of(str(claim.value))) != words[: len(less)]), best)
        fact, against = (Fact(best.key, claim.value, Origin(name, claim.line), "told") for claim in (best, other))
        if other is not best:
            fact = fact._replace(key="model.repo", value=_differ(fact, against))
        yield from [fact, fact._replace(key="model.name")] if fact.key == "model.path" else [fact]


def _joined(claim: Claim, other: Claim) -> Claim | None:
    """Return the claim that says more, or None if they contradict. Metadata drops the local tag of a version
    (2.5.0+cu118), and some tools drop the last part of a number."""
    if claim.value == other.value:
        return other if claim.partial else claim
    if not (isinstance(claim.value, str) and isinstance(other.value, str)):
        return None
    if claim.key == "os.libc_version":  # of a Python's platform it may be what the interpreter was built for: no less
        return max(claim, other, key=lambda each: dotted(str(each.value)) or ())
    short, long = (claim, other) if len(claim.value) < len(other.value) else (other, claim)
    rest = str(long.value).removeprefix(str(short.value))
    separator = "." if short.partial or not long.key.startswith("pkg.") else "+"
    return long if len(rest) < len(str(long.value)) and rest.startswith(separator) else None


def _checked(facts: Iterable[Fact], matrix: Matrix) -> Iterator[Fact]:
    """Facts that the registry knows, of its types."""
    for fact in facts:
        spec = matrix.registry.find(fact.key)
        if spec is None or strange_name(fact.key, matrix.registry) is not None:
            continue
        if not isinstance(fact.value, Unknown) and fact.value is not ABSENT:
            try:
                fact = fact._replace(value=parse_value(spec, fact.value))
            except FactTypeError:
                continue
        yield fact
