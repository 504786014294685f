"""A script as a shell reads it: its commands, the variables that they set, and which branches are taken."""

import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import NamedTuple

from envdoctor.observe.recipe.document import RecipeError

#: The longest script that is read, in characters, and the most options that two values of a variable may have.
LARGEST, _MOST_OPTIONS = 128 << 10, 40
OPTION = re.compile(r"--?[A-Za-z]")
#: The text of a script that stands in that line; None where it cannot be read.
Other = Callable[[str, int], str | None]
#: What runs another script of the shell, and how deep that goes.
_RUN = ("source", ".", "bash", "sh")
#: Stands in a text for what is not known of it.
_UNKNOWN = "\ufffd"
#: Stands for a value that the branch of an undecided test may have set.
_OPEN = "\ufffc"
_MOST_INNER = 3
#: A root that no system has: of what is known to lie in or below the script's folder, or above it.
_ROOT = "/\ufff8"
_BELOW = re.compile(_ROOT + r"[^\s:;,'\"=]*")
#: What a command that is looked into for that folder prints, and how long that is at most.
_PRINTS, _LONGEST_PRINTS = re.compile(r"(?:pwd|dirname|realpath|readlink)(?!\w)"), 200
#: A script that takes the words behind its name one after the other.
_SHIFTS = re.compile(r"\b(?:shift|getopts)\b")
_LONGEST_PATH = 4096
_DEEPEST = 30
#: Commands that a script takes to succeed.
_SUCCEED = re.compile(
    r"(?::|true|cd|pushd|echo|printf|mkdir|source|\.|set|export|declare|local|readonly|conda|module)\Z"
)
_NAME = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
#: A default may hold others: ``${N:-${1:-1}}``.
_DEFAULT = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
_PARAMETER = re.compile(
    r"\$(?:([A-Za-z_]\w*|[0-9@*#?$!-])|\{([A-Za-z_]\w*|[0-9@*#]|BASH_SOURCE\[0\])(?:\[[@*]\])?(?::?[-=]("
    + _DEFAULT
    + r"))?\})"
)
#: What whoever starts the script says.
_ASKED = re.compile(r"\"?\$\{?([1-9]|OPTARG)\}?\"?(?=[\s;]|\Z)")
_ARRAY = re.compile(r"\"\$(?:\{(\w+)\[@\]\}|@|\{@\})\"")
_HERE = re.compile(r"<<(?!<)(-?)\s*(\\?[\"']?)([A-Za-z_]\w*)[\"']?")
_STOPS = "\n;&|()"
#: ``> log``, ``2>&1``, ``&>> log``: no word of the command, in ``[[`` and ``[`` apart.
_REDIRECTED = re.compile(r"(?:\d|&)?(?:<<<|>>|[<>])[&|]?[ \t]*(?![(<>])")
#: ``--model <path to the model>``, for whoever types it.
_BLANK = re.compile(r"<[A-Za-z][^<>\n;|&$]{0,80}>")
#: Words of the shell that stand before a command.
_BEFORE = re.compile(
    r"(?:then|do|else|if|elif|while|until|!|\{|time|exec|nohup|eval|sudo|export|declare|readonly|local|env)\Z"
)
#: In words of ``eval``: what they say is another thing once they are joined and read again.
_AGAIN = re.compile(r"[\s'\"\\;&|<>$`]")
_SUM = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\(expr[ \t]([^()`]*)\)")
#: How the left number may stand to the right one.
_NUMERIC = {"-eq": (0,), "-ne": (-1, 1), "-gt": (1,), "-lt": (-1,), "-ge": (0, 1), "-le": (-1, 0)}


class Word(NamedTuple):
    """A word of a command and its line; ``computed``: a variable of which no value is known stands in it, ``asked``: it
    is what somebody gives to the script itself."""

    text: str
    line: int
    computed: bool = False
    asked: bool = False

    @property
    def known(self) -> str:
        """Return what is known of the text."""
        return self.text.replace(_UNKNOWN, "").replace(_OPEN, "")

    @property
    def undecided(self) -> bool:
        """Return whether the branch of an undecided test may have set some of it."""
        return _OPEN in self.text


class _Branches:
    """The branches of an ``if``, a ``case``, a chain (``&&``, ``||``) or a group (``{``). ``state``: whether the shell
    takes the current branch, None if the test is undecided; ``rest``: whether it gets to the next one. ``values`` holds
    what undecided branches set, and how many of them set it."""

    def __init__(self, kind: str, subject: Word | None = None) -> None:
        self.kind, self.subject = kind, subject
        self.state: bool | None = True
        self.rest: bool | None = True
        self.open = 0
        self.values: dict[str, tuple[list[Word], int]] = {}


class Shell:
    """A script as a shell reads it: its commands in their order, without those of branches that are not taken, the
    ``variables`` at the end, and the ``folder`` in which the current command runs, from the one that is started in, and
    its ``lines``; ``exited`` where it stands behind an ``exit``."""

    def __init__(
        self,
        text: str,
        variables: MutableMapping[str, list[Word]],
        line: int,
        other: Other,
        *,
        inner: int = 0,
        start: str = "/",
    ) -> None:
        """``start`` is the folder of the script, or the one in which a command is typed."""
        self.variables = variables
        self._other, self._inner = other, inner
        self._text, self._at, self._line = text, 0, line
        self._place = ""  # into which commands changed, from where the shell is started or below the script's folder
        self._start = _ROOT + start.rstrip("/")
        script = [Word(f"{self._start}/0", line)]
        self._given = dict.fromkeys(("0", "BASH_SOURCE", "BASH_SOURCE[0]"), script)  # and the words behind its name
        self.lines = (line, line)  # of the current command, the first and the last
        self.exited = False
        self._here: tuple[str, list[Word]] | None = None  # the end of a here-document, and its words
        self._left = LARGEST * 4
        self._stop = ""
        self._status: bool | None = None  # whether the last command succeeds
        self._branches: list[_Branches] = []
        self._before: list[dict[str, list[Word] | None]] = []  # of each undecided branch, what its variables were

    @property
    def folder(self) -> str:
        return self.near(self._place, "") if self._place.startswith(_ROOT) else self._place

    def near(self, text: str, place: str | None = None) -> str:
        """Return a text with what lies in or below the folder of the script named from where the shell is."""
        at = os.path.join(self._start, self._place if place is None else place)
        at = at if at.startswith(_ROOT) else self._start  # a folder of the system
        return _BELOW.sub(lambda path: os.path.relpath(path[0], at), text) if _ROOT in text else text

    def _inside(self, text: str, variables: MutableMapping[str, list[Word]], line: int, inner: int) -> "Shell":
        """Return a shell of a text that stands here."""
        shell = Shell(text, variables, line, self._other, inner=inner)
        shell._place, shell._given, shell._start, shell._left = self._place, self._given, self._start, self._left
        return shell

    def commanded(self) -> Iterator[list[Word]]:
        words: list[Word] = []
        first = self._line
        while self._at < len(self._text):
            first = first if words else self._line
            more = self._next(redirects="[[" not in (word.text for word in words[:3]))
            if more is None:
                self.lines = first, self._line - (self._stop == "\n")
                status, is_command = _status(words), bool(words)
                inside = len(words) > 1 and words[0].text == "[[" and words[-1].text != "]]"
                test = words[:1] if inside and self._stop in ("&&", "||") else []
                yield from self._ended(words)
                self.exited = self.exited or self._exits(words)
                self._chained(status, is_command)
                words, self._here = test, None
                if self._stop == ";;" and self._is("case"):
                    words = self._arm()
            elif words or len(more) != 1 or not self._keyword(more[0].text):
                words += self._paid(more)
        self.lines = first, self._line
        yield from self._ended(words)
        while self._branches:
            self._close()

    def _is(self, *kinds: str) -> bool:
        return bool(self._branches) and self._branches[-1].kind in kinds

    def _keyword(self, word: str) -> bool:
        """Follow a word that begins, parts or ends branches; return whether nothing of the command is left to read."""
        deep = len(self._branches) >= _DEEPEST
        if word in ("if", "{") and not deep:
            self._branches.append(_Branches(word))
        elif word == "case" and not deep:
            subject = []
            while (words := self._next()) is not None and [item.text for item in words] != ["in"]:
                subject += words
            self._branches.append(_Branches(word, subject[0] if len(subject) == 1 else None))
            self._arm()
        elif (word, self._is("then")) in (("then", False), ("else", True)) and self._is("if", "then"):
            self._enter(self._status if word == "then" else True)
            self._branches[-1].kind = "then"
        elif word == "elif" and self._is("then"):
            self._leave()
            self._branches[-1].kind = "if"
            self._branches[-1].state = self._branches[-1].rest is not False
        elif word == "do":
            return True
        elif (word, True) in (("fi", self._is("then")), ("esac", self._is("case")), ("}", self._is("{"))):
            self._close()
            return False
        else:
            return False
        self._status = None
        return True

    def _arm(self) -> list[Word]:
        """Read the patterns of the next arm of a ``case``, or its end, which is returned."""
        patterns: list[Word] = []
        while self._at < len(self._text):
            words = self._next()
            if words and not patterns and words[0].text == "esac":
                self._close()
                return words
            patterns += words or ()
            if words is None and self._stop == ")":
                break
        matches = [_equal(self._branches[-1].subject, pattern, fnmatchcase) for pattern in patterns[:200]]
        self._enter(True if True in matches else None if None in matches else False)
        return []

    def _chained(self, status: bool | None, is_command: bool) -> None:
        """Take in how a command ends, and what joins it to the next one."""
        if not is_command or self._stop == "|":
            return
        if self._is("&&", "||"):
            chain = self._branches[-1]
            joins = chain.kind == "&&"
            if chain.kind == self._stop == "&&" and chain.state is None and status is not False:
                return
            self._close()
            status = _both(chain.state, status) if joins else _not(_both(chain.state, _not(status)))
        self._status = status
        if self._stop in ("&&", "||"):
            self._branches.append(_Branches(self._stop))
            self._enter(status if self._stop == "&&" else _not(status))

    def _enter(self, truth: bool | None) -> None:
        """Begin a branch that is taken if the shell gets there and the test says so."""
        self._leave()
        top = self._branches[-1]
        top.state, top.rest = _both(top.rest, truth), _both(top.rest, _not(truth))
        if top.state is None:
            self._before.append({})

    def _leave(self) -> None:
        """End a branch; of one that is undecided the variables are again what they were before it."""
        top = self._branches[-1]
        if top.state is not None:
            return
        top.state, top.open = True, top.open + 1
        for name, before in self._before.pop().items():
            value = self.variables.pop(name)
            if before is not None:
                self.variables[name] = before
            earlier, count = top.values.get(name, (value, 0))
            flags = [any(word.asked for word in words) for words in (earlier, value)]
            top.values[name] = (value if flags[0] else earlier if flags[1] else _either(earlier, value), count + 1)

    def _close(self) -> None:
        """End all branches: a variable is known afterwards if each of them leaves it the same."""
        self._leave()
        top = self._branches.pop()
        top.open += top.rest is not False
        for name, (value, count) in top.values.items():
            certain = count == top.open or any(word.asked for word in value)
            self._set(name, value if certain else _either(self.variables.get(name, []), value))

    def _set(self, name: str, value: list[Word]) -> None:
        if self._before:
            self._before[-1].setdefault(name, self.variables.get(name))
        self.variables[name] = value

    def _exits(self, words: Sequence[Word]) -> bool:
        """Return whether the command that ended here ends the script: an ``exit`` with which its line begins, in no
        branch; one of a function or a loop is further in."""
        row = self._text.rfind("\n", 0, self._at - 1) + 1
        alone = not self._branches and self._stop in ("\n", ";") and self._text.startswith("exit", row)
        names = [word.text.lower() for word in words[:2]]
        return alone and names[:1] == ["exit"] and "/b" not in names  # exit /b: cmd's subroutines

    def _left_out(self) -> bool:
        return any(branch.state is False for branch in self._branches)

    def _ended(self, words: list[Word]) -> Iterator[list[Word]]:
        """Yield the command, or those of the script that it runs, all in its line."""
        done = self._done(words)
        if self._left_out():
            return
        names = [word.text for word in done]
        if names[:1] in (["cd"], ["pushd"]) and len(done) > 1:
            # "$(dirname "$0")/..": a folder that is not known, as a rule the script's own.
            to = done[-1].known.lstrip("/") if done[-1].computed else names[-1]
            folder = os.path.normpath(os.path.join("" if done[-1].computed else self._place, to))
            self._place = folder if len(folder) < _LONGEST_PATH else self._place  # as the system would refuse it
        at = next((at for at in range(1, len(done) - 1) if names[at] in ("-c", "-lc") and names[at - 1] in _RUN), 0)
        text = script = None
        if names[:1] == ["eval"] and self._inner < _MOST_INNER:
            text = " ".join(word.text + _UNKNOWN * (word.computed and not _doubtful(word.text)) for word in done[1:])
        elif at and self._inner < _MOST_INNER:
            text = done[at + 1].text
        elif len(done) > 1 and names[0] in _RUN and not done[1].computed and self._inner < _MOST_INNER:
            script = self.near(names[1], "")
            text = self._other(script, done[0].line)
        if text is None:
            yield done
            return
        shell = self._inside(text[:LARGEST], self.variables, done[at].line, self._inner + 1)
        shell._before, shell._left = self._before, self._left if script is None else LARGEST * 4
        if script is not None:
            own = [Word(os.path.normpath(os.path.join(self._start, script)), done[1].line)]
            shell._given = {**self._given, "BASH_SOURCE": own, "BASH_SOURCE[0]": own}
            if names[0] in ("bash", "sh"):
                rest = [] if _SHIFTS.search(text) else done[2:]
                numbered = {str(number): [word] for number, word in enumerate(rest, 1)}
                several = {"@": rest, "*": rest, "#": [Word(str(len(rest)), done[0].line)]} if rest else {}
                shell._given = {**dict.fromkeys(("0", "BASH_SOURCE", "BASH_SOURCE[0]"), own), **numbered, **several}
        before = self._place
        for command in shell.commanded():
            self._place = shell._place
            if shell.exited:
                continue
            yield [*done[: max(0, at - 1)], *command]
        self._place = shell._place if names[0] in ("source", ".", "eval") else before
        self._left = shell._left if script is None else self._left

    def _paid(self, words: list[Word]) -> list[Word]:
        """Return the words. Raises :class:`RecipeError` when variables that stand for variables grow without end."""
        self._left -= sum(len(word.text) + 8 for word in words)
        if self._left < 0:
            raise RecipeError("is too large; variables count for all that they stand for")
        return words

    def _done(self, words: list[Word]) -> list[Word]:
        """Return the command without what stands before it; assignments are kept as variables."""
        while words and (_BEFORE.match(words[0].text) or _NAME.match(words[0].text)):
            if words[0].text == "eval" and any(_AGAIN.search(word.text) for word in words):
                break
            word = words.pop(0)
            if (match := _NAME.match(word.text)) is not None:
                value = word._replace(text=word.text[match.end() :])
                self._assign(match, _split(value) or [value] * value.computed)
        if words and words[0].text == "read" and self._here is not None:
            # read -r -d '' NAME <<EOF
            if not self._left_out():
                self._set(words[-1].text, self._here[1])
            return []
        return words

    def _assign(self, name: re.Match[str], value: list[Word]) -> None:
        if self._left_out() or (name[1] in self.variables and any(word.asked for word in value)):
            return  # what stands above is what the script takes by itself
        before = self.variables.get(name[1], []) if name[3] else []
        self._set(name[1], before + self._paid(value))

    def _next(self, redirects: bool = True) -> list[Word] | None:
        """Return the next word, or the words that it stands for; None at the end of a command."""
        while self._at < len(self._text) and (self._peek() in " \t\r" or self._text.startswith("\\\n", self._at)):
            self._skip(2 if self._peek() == "\\" else 1)
        start = self._peek()
        here = _HERE.match(self._text, self._at) if start == "<" else None
        redirected = _REDIRECTED.match(self._text, self._at) if redirects and here is None else None
        if (blank := _BLANK.match(self._text, self._at)) is not None:
            self._skip(len(blank[0]))
            return [Word("", self._line, True)]
        if redirected is not None:
            self._skip(len(redirected[0]))
            if self._peek() not in _STOPS:
                self._word()
            return []
        if start == "#":
            self._skip(max(0, self._text.find("\n", self._at) - self._at) or len(self._text))
            return []
        if start in _STOPS:
            double = self._text[self._at : self._at + 2]
            self._stop = double if double in ("&&", "||", ";;") else start
            self._skip(len(self._stop))
            if start == "\n" and self._here is not None:
                self._document(self._here[0])
            return None
        if here is not None:
            self._skip(here.end() - here.start())
            self._here = (here[3], [])
            return []
        if start in "<>":
            self._skip(1)
            return []
        return self._word()

    def _word(self) -> list[Word]:
        line, parts, computed, asked_for = self._line, "", False, False
        spread: list[Word] = []
        while self._at < len(self._text) and self._peek() not in " \t\r<>" + _STOPS:
            char = self._peek()
            match = _ASKED.match(self._text, self._at) if not parts or parts.endswith("=") else None
            if match is not None and match[1] not in self._given:
                self._skip(len(match[0]))
                return [Word(parts, line, True, True)]
            if char == "\\":
                parts += self._escaped()
            elif char == "'":
                end = self._text.find("'", self._at + 1)
                end = len(self._text) if end < 0 else end
                parts += self._text[self._at + 1 : end]
                self._skip(end + 1 - self._at)
            elif (array := _ARRAY.match(self._text, self._at)) is not None:
                every = self.variables.get(array[1]) if array[1] else self._given.get("@")
                spread += [Word("", line, True, not array[1])] if every is None else every
                self._skip(len(array[0]))
            elif char == '"':
                text, unknown, asked_for = self._quoted()
                parts, computed = parts + text, computed or unknown
            elif (value := self._expanded()) is None:
                computed = True
            elif char == "$" and not parts and not spread and len(value) != 1:
                spread = value
            else:
                parts += joined(value)
                computed = computed or any(word.computed for word in value)
                asked_for = any(word.asked for word in value)
            if self._peek() == "(" and parts.endswith("=") and (name := _NAME.match(parts)):
                self._assign(name, self._array())
                return [Word("declare", line)]
        computed = computed or _doubtful(parts)
        asked_for = asked_for and parts in ("", _UNKNOWN)
        return [*spread, Word(parts, line, computed, asked_for)] if parts or computed or not spread else spread

    def _escaped(self) -> str:
        self._skip(1)
        char = self._peek()
        self._skip(1)
        return "" if char == "\n" else char

    def _expanded(self, quoted: bool = False) -> list[Word] | None:
        """Return the words of a sum, a variable or a plain character; None for what is not known. Between quotes a
        dollar alone and a back quote are plain."""
        char = self._peek()
        if char == "$" and (total := self._sum()) is not None:
            return [Word(total, self._line)]
        if self._text.startswith("$(", self._at) or (char == "`" and not quoted):
            return self._substitution()
        if char == "$" and (match := _PARAMETER.match(self._text, self._at)) is not None:
            value = self._value(match)
            self._skip(len(match[0]))
            return value
        self._skip(1)
        return None if char == "$" and not quoted else [Word(char, self._line)]

    def _array(self) -> list[Word]:
        """Return the words of ``(one two)``."""
        self._skip(1)
        words: list[Word] = []
        while self._at < len(self._text):
            more = self._next()
            if more is None and self._stop == ")":
                break
            words += self._paid(more or [])
        return words

    def _quoted(self) -> tuple[str, bool, bool]:
        """Return what stands between double quotes, whether some of it is not known, and whether somebody gives it."""
        self._skip(1)
        text, computed, is_asked = "", False, False
        while self._at < len(self._text) and self._peek() != '"':
            if self._peek() == "\\":
                text += self._escaped()
                continue
            value = self._expanded(quoted=True)
            unknown = value is None or any(word.computed for word in value)
            text += (piece := joined(value or ()))
            text += _UNKNOWN if unknown and not _doubtful(piece) else ""
            computed = computed or unknown
            is_asked = any(word.asked for word in value or ())
        self._skip(1)
        return text, computed, is_asked

    def _sum(self) -> str | None:
        """Return what ``$((16 / NODES))`` or ``$(expr 16 / $NODES)`` comes to, where all is known."""
        match = _SUM.match(self._text, self._at)
        if match is None:
            return None

        def known(name: re.Match[str]) -> str:
            value = self.variables.get(name[1] or name[2], [])
            return value[0].text if len(value) == 1 and not value[0].computed else "?"

        terms = re.sub(r"\$?\{(\w+)\}|\$?([A-Za-z_]\w*)", known, match[1] or match[2])
        total = _whole(terms)
        if total is not None:
            self._skip(len(match[0]))
        return total

    def _substitution(self) -> list[Word] | None:
        """Return what the command in ``$(…)`` or back quotes prints: a folder of the script; all else is not known."""
        start = self._at
        if self._peek() == "`":
            end = self._text.find("`", self._at + 1)
            self._skip((end if end >= 0 else len(self._text)) + 1 - self._at)
            return self._printed(self._text[start + 1 : self._at - 1])
        depth = 0
        while self._at < len(self._text):
            depth += {"(": 1, ")": -1}.get(self._peek(), 0)
            ended = self._peek() == ")" and depth == 0
            self._skip(1)
            if ended:
                return self._printed(self._text[start + 2 : self._at - 1])
        return None

    def _printed(self, text: str) -> list[Word] | None:
        if len(text) > _LONGEST_PRINTS or _PRINTS.search(text) is None:
            return None
        shell = self._inside(text, ChainMap({}, self.variables), self._line, _MOST_INNER)
        path = ""
        for words in filter(None, shell.commanded()):
            match [word.text for word in words if word.text[:1] != "-"]:
                case ["cd", _]:
                    continue
                case ["pwd"]:
                    path = shell._place
                case ["dirname", of]:
                    path = os.path.dirname(of)
                case ["realpath" | "readlink", of]:
                    path = of
                case _:
                    return None
        self._left = shell._left
        return [Word(os.path.normpath(path), self._line)] if path.startswith(_ROOT) else None

    def _value(self, match: re.Match[str]) -> list[Word] | None:
        name, otherwise = match[1] or match[2], match[3]
        words = self._given.get(name, self.variables.get(name))
        if words is None and otherwise is not None:
            return self._words(otherwise, self._line)
        return [Word("", self._line, True, True)] if words is None else words

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
        self._here = (end, self._words("\n".join(inner), first))

    def _words(self, text: str, line: int) -> list[Word]:
        """Return the words of a text in which variables may stand."""
        shell = self._inside(text, ChainMap({}, self.variables), line, 0)
        words: list[Word] = []
        while shell._at < len(text):
            words += self._paid(shell._next() or [])
        return words

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, count: int) -> None:
        if not self._inner:
            self._line += self._text.count("\n", self._at, self._at + count)
        self._at += count


def _status(words: Sequence[Word]) -> bool | None:
    """Return whether a command succeeds, as a test or one that hardly fails; None for what is undecided."""
    if not words or words[0].computed:
        return None
    name, test = words[0].text, words[1:]
    if name == "!":
        return _not(_status(test)) if len(test) < 10 else None
    if name == "false":
        return False
    if name not in ("[", "[[", "test"):
        sets = all(_NAME.match(word.text) and not word.computed for word in words)
        return True if sets or _SUCCEED.match(name) else None
    test = test[:-1] if test and test[-1].text in ("]", "]]") else test
    if 1 < len(test) < 5 and test[0].text == "!":
        return _not(_status((words[0], *test[1:])))
    empty = Word("", 0)
    match [word.text for word in test]:
        case [_] | ["-n", _]:
            return _not(_equal(test[-1], empty))
        case ["-z", _]:
            return _equal(test[1], empty)
        case [_, "=" | "==" | "!=" as operator, _]:
            same = _equal(test[0], test[2], fnmatchcase if name == "[[" else str.__eq__)
            return _not(same) if operator == "!=" else same
        case [left, operator, right] if operator in _NUMERIC and not (test[0].computed or test[2].computed):
            numbers = [int(text) for text in (left, right) if len(text) < 20 and text.removeprefix("-").isdecimal()]
            order = (numbers[0] > numbers[-1]) - (numbers[0] < numbers[-1]) if len(numbers) == 2 else None
            return None if order is None else order in _NUMERIC[operator]
    return None


def _equal(left: Word | None, right: Word, how: Callable[[str, str], bool] = str.__eq__) -> bool | None:
    """Return whether two words are the same; what somebody may give to the script is empty by itself."""
    if how is fnmatchcase and right.text == "*":
        return True
    sides = [("", False) if word.asked else (word.text, word.computed) for word in (left or right, right)]
    if left is None or any(computed for _, computed in sides) or len(left.text) + len(right.text) > 200:
        return None
    if left.asked or right.asked:
        return None if any(text for text, _ in sides) else True
    return how(left.text, right.text)


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _both(left: bool | None, right: bool | None) -> bool | None:
    return False if False in (left, right) else None if None in (left, right) else True


def _either(first: list[Word], second: list[Word]) -> list[Word]:
    """Return what two values begin with, the other options of both, whose values are undecided, and the options that
    both end with."""
    pairs = enumerate(zip(first, second, strict=False))
    shorter = min(len(first), len(second))
    at = next((at for at, (left, right) in pairs if left[::2] != right[::2]), shorter)
    ends = zip(reversed(first[at:]), reversed(second[at:]), strict=False)
    end = [left for left, _ in takewhile(lambda pair: pair[0][::2] == pair[1][::2], ends)][::-1]
    end = end[next((start for start, word in enumerate(end) if OPTION.match(word.text)), len(end)) :]
    tails = [tail for value in (first, second) if (tail := value[at : len(value) - len(end)])]
    loose = [tail[0] for tail in tails if not OPTION.match(tail[0].text)]
    options = {word.text.partition("=")[0]: word for tail in tails for word in tail if OPTION.match(word.text)}
    if len(options) > _MOST_OPTIONS:
        loose, options = tails[0], {}
    undecided = [Word(f"{key}={_OPEN}", word.line, True) for key, word in options.items()]
    return [*first[:at], *([Word(_OPEN, loose[0].line, True)] if loose else ()), *undecided, *end]


def _whole(terms: str) -> str | None:
    """Return a sum of whole numbers as a shell works it out; None for anything else."""
    import ast

    from envdoctor.source.values import Expressions

    value = Expressions().value
    try:
        node = ast.parse(terms.strip().replace("/", "//"), mode="eval").body if len(terms) < 200 else ast.Constant(None)
        total = value(node, None)
        for part in ast.walk(node):  # a shell rounds towards zero
            if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.FloorDiv, ast.Mod)):
                total = total if value(part.left, None) >= 0 < value(part.right, None) else None
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        return None
    return str(total) if type(total) is int else None


def joined(words: Sequence[Word]) -> str:
    """Return the words as one text."""
    return " ".join(word.text for word in words)


def _doubtful(text: str) -> bool:
    return _UNKNOWN in text or _OPEN in text


def _split(word: Word) -> list[Word]:
    """Return the words of a text; if some say that they are not known, the others are."""
    every = word.computed and not _doubtful(word.text)
    return [word._replace(text=text, computed=every or _doubtful(text)) for text in word.text.split()]
