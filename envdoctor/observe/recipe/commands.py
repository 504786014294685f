"""A script's commands as parts: what goes to the launcher, what to the program, and the variables that are set."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from envdoctor.observe.recipe.document import MOST_ENTRIES, Part, RecipeEntry, RecipeError, scalar

_MOST_PARTS = 40
_SBATCH = re.compile(r"#SBATCH[ \t]+([^\n#]+)")
_OPTION = re.compile(r"--?[A-Za-z]")
_IN_FRONT = re.compile(r"[ \t]*--[A-Za-z](?![^\s()]*[ \t]*\))")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
#: At the end of a line: what separates commands, and what joins lines for cmd and PowerShell.
_NOT_CUT = (*";&|()^`",)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
#: How many words follow an option: a flag has none but true or false, of others one or all up to the next option.
Takes = Callable[[str], str]
#: The text of a script that stands in that line; None where it cannot be read.
Other = Callable[[str, int], str | None]
#: What runs another script of the shell, and how deep that goes.
_RUN = ("source", ".", "bash", "sh")
#: Stands in a text for what is not known of it.
_UNKNOWN = "\ufffd"
_MOST_INNER = 3
_LARGEST = 128 << 10
_NAME = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*|[0-9@*#?$!-])|\{([A-Za-z_]\w*|[0-9@*])(?:\[[@*]\])?(?::?[-=]([^{}]*))?\})")
#: What whoever starts the script says.
_ASKED = re.compile(r"\"?\$\{?(?:[1-9]|OPTARG)\}?\"?(?=[\s;]|\Z)")
_ARRAY = re.compile(r"\"\$\{(\w+)\[@\]\}\"")
_HERE = re.compile(r"<<(-?)\s*(\\?[\"']?)([A-Za-z_]\w*)[\"']?")
_STOPS = "\n;&|()"
#: Words of the shell that stand before a command.
_BEFORE = re.compile(
    r"(?:then|do|else|if|elif|while|until|!|\{|time|exec|nohup|eval|sudo|export|declare|readonly|local|env)\Z"
)

#: Programs that start the script which is named behind them.
_STARTS = re.compile(
    r"(?:i?python|pypy|accelerate|torchrun|deepspeed|composer|colossalai|srun|mpirun|mpiexec|horovodrun|ray|uv|poetry"
    r"|pipenv|conda|mamba|coverage|nsys|ncu|numactl|taskset|stdbuf|timeout|nice|singularity|apptainer|docker)[\d.]*\Z"
)
_CONTAINER = re.compile(r"(?:docker|podman|nerdctl)\Z")
_SUM = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\(expr[ \t]([^()`]*)\)")


class _Word(NamedTuple):
    """A word of a command and its line; ``computed``: a variable of which no value is known stands in it, ``asked``: it
    is what somebody gives to the script itself."""

    text: str
    line: int
    computed: bool = False
    asked: bool = False


def parts_of_script(
    text: str, kind_of: Callable[[str], str], takes: Takes, other: Other = lambda name, line: None
) -> list[Part]:
    """Return the parts of a script. ``kind_of`` knows the names that start a training program (``program``) or another
    name (``launcher``); ``other`` gives the text of a script that this one runs.

    Raises :class:`~envdoctor.observe.recipe.document.RecipeError`.
    """
    if len(text) > _LARGEST:
        raise RecipeError("is larger than {} kB, and no script of a run is", _LARGEST >> 10)
    shell = _Shell(text, {}, 1, other)
    try:
        commands = [words for words in shell.commanded() if words]
    except RecursionError:
        raise RecipeError("is nested too deeply to be read") from None
    parts = list(islice((part for words in commands for part in _parts(words, kind_of, takes)), _MOST_PARTS))
    # An option in the place of a command: a comment or an empty line ends the one above, or its backslash is missing.
    rows = text.split("\n")
    for before, words in pairwise(commands):
        lower = words[0].text.startswith("--") and words[0].line > before[-1].line
        if lower and _cut_off(rows, words[0].line - 1) and any(part.line for part in _parts(before, kind_of, takes)):
            parts.append(Part("#cut", options_of(words[:1], takes)))
            break
    asked = [
        _Word(word, number)
        for number, row in enumerate(rows, 1)
        if (found := _SBATCH.match(row)) is not None
        for word in found[1].split()
    ]
    if asked:
        parts.insert(0, Part("#SBATCH", options_of(asked, takes)))
    named = [
        RecipeEntry(name, scalar(_joined(words)[:4096]), (words[0].line,), computed=any(one.computed for one in words))
        for name, words in shell.variables.items()
        if words
    ]
    return [*parts, Part("environment", tuple(named[:MOST_ENTRIES]))]


def _cut_off(rows: Sequence[str], at: int) -> bool:
    """Return whether a row begins with an option that is no arm of a ``case``, and nothing but the end of a line parts
    it from the command above."""
    codes = (_COMMENT.sub("", rows[above]).strip() for above in range(at - 1, -1, -1))
    return bool(_IN_FRONT.match(rows[at])) and next(filter(None, codes), "")[-1:] not in _NOT_CUT


def _parts(words: Sequence[_Word], kind_of: Callable[[str], str], takes: Takes) -> Iterator[Part]:
    """Yield the launchers, and the program that they start; nothing of a command that is neither."""
    starts = [0]
    # mason.py … -- accelerate launch train.py
    handing = max((at for at, word in enumerate(words) if word.text == "--"), default=0)
    launched = (at for at in range(len(words) - 1, 0, -1) if kind_of(_base(words[at].text)) == "launcher")
    handing = min(handing, next(launched, 0)) if handing else 0
    for at, word in enumerate(words):
        module = word.text in ("-m", "--module") and at + 1 < len(words)
        behind = at + module + 1
        name = _base(words[behind - 1].text.replace(_UNKNOWN, ""))
        # "$(dirname "$0")/train.py": a folder that is not known, as a rule the script's own.
        name = name.lstrip("/") if words[behind - 1].computed else name
        if kind_of(name) == "launcher":
            starts.append(at + module)
            continue
        second = words[behind].text if behind < len(words) else "/"
        longer = "" if "/" in second else f"{name} {second}"
        script = name.endswith(".py") and (at == 0 or words[0].computed or _STARTS.match(_base(words[0].text)))
        # The image of a container is the program where options follow it, and not where a command does.
        image = _CONTAINER.match(words[0].text) and kind_of(name) == "program" and not (module or script)
        if (
            (image and not _OPTION.match(second))
            or 0 < at == starts[-1]
            or (behind <= handing and script)
            or not (module or script or "program" in (kind_of(name), kind_of(longer)))
        ):
            continue
        if kind_of(name) != "program" and kind_of(longer) == "program":
            name, behind = longer, behind + 1
        for start, end in zip(starts, [*starts[1:], at], strict=True):
            if end > start:
                yield Part(_base(words[start].text), options_of(words[start + 1 : end], takes))
        rest = words[behind:]
        given = tuple(None if one.computed else one.text for one in rest)
        yield Part(name, options_of(rest, takes), word.line, given, module)
        return


def options_of(words: Sequence[_Word], takes: Takes) -> tuple[RecipeEntry, ...]:
    """Return ``--key value``, ``--key=value``, ``key=value``, ``--flag`` and what stands alone, in their order."""
    entries: list[RecipeEntry] = []
    alone = 0
    at = 0
    while at < len(words) and len(entries) < MOST_ENTRIES:
        word = words[at]
        at += 1
        if _OPTION.match(word.text):
            key, equals, value = word.text.lstrip("-").partition("=")
            given = [word._replace(text=value)] if equals else []
            kind = takes(key)
            while not equals and at < len(words) and not _OPTION.match(words[at].text):
                if (kind == "one" and given) or (kind == "flag" and not isinstance(scalar(words[at].text), bool)):
                    break
                given.append(words[at])
                at += 1
            entries.append(_entry(key, given, word.line))
        elif (found := _OVERRIDE.match(word.text)) is not None:
            entries.append(_entry(found[1], [word._replace(text=found[2])], word.line))
        else:
            alone += 1
            entries.append(_entry(f"#{alone}", [word], word.line))
    return tuple(entries)


def _entry(key: str, given: Sequence[_Word], line: int) -> RecipeEntry:
    values = tuple(scalar(word.text) for word in given[:200])
    value = True if not values else values[0] if len(values) == 1 else values
    return RecipeEntry(key[:200], value, (line,), False, any(word.computed for word in given))


def _base(word: str) -> str:
    """Return ``scripts/dpo.py`` stays, since frameworks are told by it; of a program only its name."""
    return word if word.endswith(".py") else word.rpartition("/")[2]


class _Shell:
    """A script as a shell reads it: its commands in their order, of every branch, and the ``variables`` at the end."""

    def __init__(self, text: str, variables: dict[str, list[_Word]], line: int, other: Other, inner: int = 0) -> None:
        self.variables = variables
        self._other, self._inner = other, inner
        self._text, self._at, self._line = text, 0, line
        self._here: tuple[str, list[_Word]] | None = None  # the end of a here-document, and its words
        self._left = _LARGEST * 4

    def commanded(self) -> Iterator[list[_Word]]:
        words: list[_Word] = []
        while self._at < len(self._text):
            found = self._next()
            if found is None:
                yield from self._ended(words)
                words, self._here = [], None
            else:
                words += self._paid(found)
        yield from self._ended(words)

    def _ended(self, words: list[_Word]) -> Iterator[list[_Word]]:
        """Yield the command, or those of the script that it runs, all in its line."""
        done = self._done(words)
        names = [word.text for word in done]
        at = next((at for at in range(1, len(done) - 1) if names[at] in ("-c", "-lc") and names[at - 1] in _RUN), 0)
        text = None
        if at and self._inner < _MOST_INNER:
            text = done[at + 1].text
        elif len(done) > 1 and names[0] in _RUN and not done[1].computed and self._inner < _MOST_INNER:
            text = self._other(names[1], done[0].line)
        if text is None:
            yield done
            return
        shell = _Shell(text[:_LARGEST], self.variables, done[at].line, self._other, self._inner + 1)
        yield from ([*done[: max(0, at - 1)], *command] for command in shell.commanded())

    def _paid(self, words: list[_Word]) -> list[_Word]:
        """Return the words. Raises :class:`RecipeError` when variables that stand for variables grow without end."""
        self._left -= sum(len(word.text) + 8 for word in words)
        if self._left < 0:
            raise RecipeError("is too large; variables count for all that they stand for")
        return words

    def _done(self, words: list[_Word]) -> list[_Word]:
        """Return the command without what stands before it; assignments are kept as variables."""
        while words and (_BEFORE.match(words[0].text) or _NAME.match(words[0].text)):
            word = words.pop(0)
            if (found := _NAME.match(word.text)) is not None:
                value = word._replace(text=word.text[found.end() :])
                self._assign(found, _split(value) or [value] * value.computed)
        if words and words[0].text == "read" and self._here is not None:
            # read -r -d '' NAME <<EOF
            self.variables[words[-1].text] = self._here[1]
            return []
        return words

    def _assign(self, name: re.Match[str], value: list[_Word]) -> None:
        if name[1] in self.variables and any(word.asked for word in value):
            return  # what stands above is what the script takes by itself
        before = self.variables.get(name[1], []) if name[3] else []
        self.variables[name[1]] = before + self._paid(value)

    def _next(self) -> list[_Word] | None:
        """Return the next word, or the words that it stands for; None at the end of a command."""
        while self._at < len(self._text) and (self._peek() in " \t\r" or self._text.startswith("\\\n", self._at)):
            self._skip(2 if self._peek() == "\\" else 1)
        start = self._peek()
        if start == "#":
            self._skip(max(0, self._text.find("\n", self._at) - self._at) or len(self._text))
            return []
        if start in _STOPS:
            self._skip(1)
            if start == "\n" and self._here is not None:
                self._document(self._here[0])
            return None
        here = _HERE.match(self._text, self._at)
        if here and not self._text.startswith("<<<", self._at):
            self._skip(here.end() - here.start())
            self._here = (here[3], [])
            return []
        if start in "<>":
            self._skip(1)
            return []
        return self._word()

    def _word(self) -> list[_Word]:
        line, parts, computed = self._line, "", False
        spread: list[_Word] = []
        while self._at < len(self._text) and self._peek() not in " \t\r<>" + _STOPS:
            char = self._peek()
            if (asked := _ASKED.match(self._text, self._at)) is not None and (not parts or parts.endswith("=")):
                self._skip(len(asked[0]))
                return [_Word(parts, line, True, True)]
            if char == "\\":
                parts += self._escaped()
            elif char == "'":
                end = self._text.find("'", self._at + 1)
                end = len(self._text) if end < 0 else end
                parts += self._text[self._at + 1 : end]
                self._skip(end + 1 - self._at)
            elif (array := _ARRAY.match(self._text, self._at)) is not None:
                spread += self.variables.get(array[1], [_Word("", line, True)])
                self._skip(len(array[0]))
            elif char == '"':
                text, unknown = self._quoted()
                parts, computed = parts + text, computed or unknown
            elif (value := self._expanded()) is None:
                computed = True
            elif char == "$" and not parts and not spread and len(value) != 1:
                spread = value
            else:
                parts += _joined(value)
                computed = computed or any(word.computed for word in value)
            if self._peek() == "(" and parts.endswith("=") and (found := _NAME.match(parts)):
                self._assign(found, self._array())
                return []
        computed = computed or _UNKNOWN in parts
        return [*spread, _Word(parts, line, computed)] if parts or computed or not spread else spread

    def _escaped(self) -> str:
        self._skip(1)
        char = self._peek()
        self._skip(1)
        return "" if char == "\n" else char

    def _expanded(self, quoted: bool = False) -> list[_Word] | None:
        """Return the words of a sum, a variable or a plain character; None for what is not known. Between quotes a
        dollar alone and a back quote are plain."""
        char = self._peek()
        if char == "$" and (total := self._sum()) is not None:
            return [_Word(total, self._line)]
        if self._text.startswith("$(", self._at) or (char == "`" and not quoted):
            self._substitution()
            return None
        if char == "$" and (found := _PARAMETER.match(self._text, self._at)) is not None:
            value = self._value(found)
            self._skip(len(found[0]))
            return value
        self._skip(1)
        return None if char == "$" and not quoted else [_Word(char, self._line)]

    def _array(self) -> list[_Word]:
        """Return the words of ``(one two)``."""
        self._skip(1)
        words: list[_Word] = []
        while self._at < len(self._text):
            while self._peek() == "\n":
                self._skip(1)
            if self._peek() == ")":
                self._skip(1)
                break
            words += self._paid(self._next() or [])
        return words

    def _quoted(self) -> tuple[str, bool]:
        """Return what stands between double quotes, and whether some of it is not known."""
        self._skip(1)
        text, computed = "", False
        while self._at < len(self._text) and self._peek() != '"':
            if self._peek() == "\\":
                text += self._escaped()
                continue
            value = self._expanded(quoted=True)
            unknown = value is None or any(word.computed for word in value)
            text += _joined(value or ()) or (_UNKNOWN if unknown else "")
            computed = computed or unknown
        self._skip(1)
        return text, computed

    def _sum(self) -> str | None:
        """Return what ``$((16 / NODES))`` or ``$(expr 16 / $NODES)`` comes to, where all is known."""
        found = _SUM.match(self._text, self._at)
        if found is None:
            return None

        def known(name: re.Match[str]) -> str:
            value = self.variables.get(name[1] or name[2], [])
            return value[0].text if len(value) == 1 and not value[0].computed else "?"

        terms = re.sub(r"\$?\{(\w+)\}|\$?([A-Za-z_]\w*)", known, found[1] or found[2])
        total = _whole(terms)
        if total is not None:
            self._skip(len(found[0]))
        return total

    def _substitution(self) -> None:
        """Leave out ``$(…)`` or back quotes: what a command prints is not known."""
        if self._peek() == "`":
            end = self._text.find("`", self._at + 1)
            self._skip((end if end >= 0 else len(self._text)) + 1 - self._at)
            return
        depth = 0
        while self._at < len(self._text):
            depth += {"(": 1, ")": -1}.get(self._peek(), 0)
            ended = self._peek() == ")" and depth == 0
            self._skip(1)
            if ended:
                return

    def _value(self, found: re.Match[str]) -> list[_Word] | None:
        name, otherwise = found[1] or found[2], found[3]
        known = self.variables.get(name)
        if known is None and otherwise is not None:
            return _split(_Word(otherwise, self._line, "$" in otherwise))
        return known

    def _document(self, end: str) -> None:
        """Read a here-document: its words, for ``read NAME``."""
        inner, first = [], self._line
        while self._at < len(self._text):
            stop = self._text.find("\n", self._at)
            stop = len(self._text) if stop < 0 else stop
            row = self._text[self._at : stop]
            self._skip(stop + 1 - self._at)
            if row.strip() == end:
                break
            inner.append(row)
        shell = _Shell("\n".join(inner), self.variables, first, lambda name, line: None)
        self._here = (end, [word for command in shell.commanded() for word in command])

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, count: int) -> None:
        if not self._inner:
            self._line += self._text.count("\n", self._at, self._at + count)
        self._at += count


def _whole(terms: str) -> str | None:
    """Return a sum of whole numbers as a shell works it out; None for anything else."""
    import ast

    operators = {
        ast.Add: int.__add__,
        ast.Sub: int.__sub__,
        ast.Mult: int.__mul__,
        ast.Div: int.__floordiv__,
        ast.Mod: int.__mod__,
    }

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in operators:
            return operators[type(node.op)](value(node.left), value(node.right))
        raise ValueError

    try:
        return str(value(ast.parse(terms.strip(), mode="eval").body)) if len(terms) < 200 else None
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _joined(words: Sequence[_Word]) -> str:
    return " ".join(word.text for word in words)


def _split(word: _Word) -> list[_Word]:
    return [word._replace(text=text) for text in word.text.split()]
