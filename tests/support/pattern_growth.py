"""Prove from a regular expression's parse tree how much work a character of the text may cost at most."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from math import inf, prod
from typing import Any, NamedTuple

try:
    from re import _compiler as compiler
    from re import _constants as constants
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_compile as compiler  # type: ignore[no-redef]
    import sre_constants as constants  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

#: Characters that stand for all: every class of these patterns tells some of them apart.
_SAMPLES = "".join(map(chr, range(128))) + "\x85\x9b\xa0\xe9\u0130\u0660\u0301\u2028\u200b\u2500\u4e2d\U0001f917"
_START, _END = -1, -2
_FEW = 4  # repeats up to this limit are counted exactly
_CHARACTERS = {constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN, constants.RANGE}
_REPEATS = {constants.MAX_REPEAT, constants.MIN_REPEAT, getattr(constants, "POSSESSIVE_REPEAT", None)}

#: Says whether an edge may be taken between two neighbouring characters, or the ends of the text.
Test = Callable[[int, int], bool]
#: The repeats that an edge begins again, by a number, each with its limit.
Repeats = frozenset[tuple[int, float]]


class Edge(NamedTuple):
    """A way from a position to another, or to the end of the pattern."""

    position: int
    tests: tuple[Test, ...]
    repeats: Repeats


class _Builder:
    """Positions of a pattern, one for each character class in it, and the edges between them."""

    def __init__(self, pattern: str | bytes, flags: int, how: str) -> None:
        tree = parser.parse(pattern, flags)
        self._bytes = isinstance(pattern, bytes)
        self._groups: dict[int, Any] = {}
        self._empty: list[list[tuple[int, Test | None, float]]] = []  # the edges of a node that read nothing
        self._reads: dict[int, tuple[int, int]] = {}  # the position at a node and the node behind it
        self.classes: list[frozenset[str]] = []
        self.samples = _SAMPLES + "".join({c for c in _text(pattern) if c not in _SAMPLES})
        if self._bytes:
            self.samples = "".join(map(chr, range(256)))
        start = first = self._node()
        if how == "search":
            self._read(first, frozenset(self.samples), first)
            start, first = first, self._node()
            self._link(start, first)
        last = self._sequence(tree, tree.state.flags, first)
        if how == "fullmatch":
            last, before = self._node(), last
            self._link(before, last, lambda _, char: char == _END)
        self._last = last
        self._start = start

    def edges(self) -> dict[int, list[Edge]]:
        """Return the edges of every position; the end of the pattern is the position ``_END``."""
        behind = {_START: self._start, **dict(self._reads.values())}
        return {position: list(self._ways(node)) for position, node in behind.items()}

    def _ways(self, node: int) -> Iterator[Edge]:
        ways: list[tuple[int, tuple[Test, ...], Repeats, frozenset[int]]] = [(node, (), frozenset(), frozenset())]
        while ways:
            node, tests, repeats, passed = ways.pop()
            if node == self._last:
                yield Edge(_END, tests, repeats)
            if node in self._reads:
                yield Edge(self._reads[node][0], tests, repeats)
            for after, test, most in self._empty[node]:
                if after not in passed:  # nothing is repeated
                    again = repeats | {(after, most)} if most else repeats
                    ways.append((after, (*tests, test) if test else tests, again, passed | {node}))

    def _node(self) -> int:
        self._empty.append([])
        return len(self._empty) - 1

    def _link(self, node: int, after: int, test: Test | None = None, weight: float = 0) -> None:
        self._empty[node].append((after, test, weight))

    def _read(self, node: int, characters: frozenset[str], after: int) -> None:
        self.classes.append(characters)
        self._reads[node] = (len(self.classes) - 1, after)

    def _sequence(self, items: Any, flags: int, node: int) -> int:
        for operation, argument in items:
            node = self._item(operation, argument, flags, node)
        return node

    def _item(self, operation: Any, argument: Any, flags: int, node: int) -> int:
        after = self._node()
        if operation in _CHARACTERS:
            reading = self._node()
            self._link(node, reading)
            self._read(reading, self._class(operation, argument, flags), after)
            return after
        if operation in _REPEATS:
            return self._repeat(*argument, flags, node)
        if operation == constants.SUBPATTERN:
            group, added, removed, body = argument
            self._groups[group] = body
            return self._sequence(body, (flags | added) & ~removed, node)
        if operation == constants.BRANCH:
            for body in argument[1]:
                begin = self._node()
                self._link(node, begin)
                self._link(self._sequence(body, flags, begin), after)
            return after
        if operation == constants.GROUPREF:
            return self._sequence(self._groups[argument], flags, node)
        if operation in (constants.ASSERT, constants.ASSERT_NOT):
            return self._look(operation == constants.ASSERT, *argument, flags, node)
        if operation == constants.AT:
            self._link(node, after, _at(argument, flags))
            return after
        if str(operation) == "ATOMIC_GROUP":
            return self._sequence(argument, flags, node)
        raise NotImplementedError(str(operation))

    def _repeat(self, least: int, most: float, body: Any, flags: int, node: int) -> int:
        most = inf if most == constants.MAXREPEAT else most
        if most <= _FEW:
            after = self._node()
            for number in range(int(most)):
                if number >= least:
                    self._link(node, after)
                node = self._sequence(body, flags, node)
            self._link(node, after)
            return after
        if least > _FEW:  # so often it must be there, and one more
            node = self._loop(least, body, flags, node)
        for _ in range(least if least <= _FEW else 1):
            node = self._sequence(body, flags, node)
        return self._loop(most - least, body, flags, node) if most > least else node

    def _loop(self, weight: float, body: Any, flags: int, node: int) -> int:
        begin, after = self._node(), self._node()
        self._link(node, begin)
        self._link(self._sequence(body, flags, begin), begin, None, weight)
        self._link(begin, after)
        return after

    def _look(self, wanted: bool, direction: int, body: Any, flags: int, node: int) -> int:
        after = self._node()
        accepted = self._one(body, flags)
        if accepted is None:
            self._link(node, after)
            if direction > 0:  # what is looked at is work too, and leads nowhere
                begin = self._node()
                self._link(node, begin)
                self._sequence(body, flags, begin)
            return after

        def fits(before: int, behind: int) -> bool:
            char = behind if direction > 0 else before
            return any(test(before, behind) if test else char in characters for characters, test in accepted) == wanted

        self._link(node, after, fits)
        return after

    def _one(self, body: Any, flags: int) -> "list[tuple[frozenset[int], Test | None]] | None":
        """Return what a look at a single character or an end takes."""
        bodies = body[0][1][1] if len(body) == 1 and body[0][0] == constants.BRANCH else [body]
        accepted: list[tuple[frozenset[int], Test | None]] = []
        for items in bodies:
            if len(items) != 1:
                return None
            operation, argument = items[0]
            if operation in _CHARACTERS:
                accepted.append((frozenset(map(ord, self._class(operation, argument, flags))), None))
            elif operation == constants.AT:
                accepted.append((frozenset(), _at(argument, flags)))
            else:
                return None
        return accepted

    def _class(self, operation: Any, argument: Any, flags: int) -> frozenset[str]:
        return _characters(repr((operation, argument)), operation, _Hidden(argument), flags, self._bytes, self.samples)


class _Hidden:
    """An argument that is not part of a key: the text of it is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@cache
def _characters(
    key: str, operation: Any, argument: _Hidden, flags: int, is_bytes: bool, samples: str
) -> frozenset[str]:
    state = parser.State()
    state.flags, state.str = flags, b"" if is_bytes else ""
    compiled = compiler.compile(parser.SubPattern(state, [(operation, argument.value)]), flags)
    return frozenset(c for c in samples if compiled.match(c.encode("latin-1") if is_bytes else c))


def _text(pattern: str | bytes) -> str:
    return pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern


def _is_word(char: int) -> bool:
    return char >= 0 and (chr(char).isalnum() or char == ord("_"))


def _at(where: Any, flags: int) -> Test:
    name = str(where)
    if "BOUNDARY" in name:
        apart = "NON" not in name
        return lambda before, behind: (_is_word(before) != _is_word(behind)) == apart
    if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        lines = name == "AT_BEGINNING" and bool(flags & re.MULTILINE)
        return lambda before, _: before == _START or (lines and before == ord("\n"))
    lines = name == "AT_END"
    return lambda _, behind: behind == _END or (lines and behind == ord("\n"))


class _Graph:
    """Positions with the character that was read there last, without those that lead nowhere new."""

    def __init__(self, builder: _Builder) -> None:
        edges = builder.edges()
        self._symbols = self._letters(builder, edges)
        #: The edges of a state, which is a position and the character that was read there.
        self.after: dict[tuple[int, int], dict[tuple[int, int], list[Repeats]]] = {}
        self.accepts: set[int] = set()  # positions behind which any text is accepted
        for position, ways in edges.items():
            if any(way.position == _END and not way.tests for way in ways):
                self.accepts.add(position)
            for before in [_START] if position == _START else self._of(builder.classes[position]):
                behind = self.after.setdefault((position, before), {})
                for way in ways:
                    for char in self._of(builder.classes[way.position]) if way.position >= 0 else ():
                        if all(test(before, char) for test in way.tests):
                            behind.setdefault((way.position, char), []).append(way.repeats)
        self.before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for state, behind in self.after.items():
            for other in behind:
                self.before.setdefault(other, []).append(state)

    def _of(self, characters: frozenset[str]) -> list[int]:
        return [symbol for symbol in self._symbols if chr(symbol) in characters]

    def _letters(self, builder: _Builder, edges: dict[int, list[Edge]]) -> list[int]:
        """Return one character of all that the pattern treats alike."""
        tests = {test for ways in edges.values() for way in ways for test in way.tests}
        probes = [ord(c) for c in builder.samples if c in "a \n"] + [_START, _END]
        kinds: dict[tuple[bool, ...], int] = {}
        for char in builder.samples:
            kind = [char in characters for characters in builder.classes]
            kind += [test(ord(char), other) for test in tests for other in probes]
            kind += [test(other, ord(char)) for test in tests for other in probes]
            kinds.setdefault(tuple(kind), ord(char))
        return list(kinds.values())


def work(pattern: str | bytes, flags: int, how: str) -> float:
    """Return how often one character is looked at, at most, by ways through the pattern: infinite where that grows.

    ``how`` is "match", "fullmatch" or "search" (at every place of the text). Repeats in a row that can read the same
    text are counted by their limits, without the longest, as the text's length decides that one.
    """
    graph = _Graph(_Builder(pattern, flags, how))
    loops = _components(graph.after)
    weights = [
        prod(
            most
            for _, most in frozenset().union(
                *(w for s in loop for e, ws in graph.after[s].items() if e in loop for w in ws)
            )
        )
        for loop in loops
    ]
    if how == "search":
        weights = [
            inf if any(position == 0 for position, _ in loop) else weight
            for loop, weight in zip(loops, weights, strict=True)
        ]

    def failing(loop: set[Any]) -> set[Any]:
        """Return the states of a loop without those where any text is accepted, so that no other way is tried."""
        return {state for state in loop if state[0] not in graph.accepts}

    for loop in loops:
        if _is_nested(graph, failing(loop)):
            return inf
    ahead = [_reached(graph.after, loop) for loop in loops]
    before = [_reached(graph.before, failing(loop)) for loop in loops]
    behind = {
        number: [
            other
            for other, later in enumerate(loops)
            if other != number and _overlap(graph, loop, failing(later), ahead[number] & before[other])
        ]
        for number, loop in enumerate(loops)
    }

    def chains(number: int, earlier: tuple[float, ...]) -> float:
        chain = (*earlier, weights[number])
        ends = [chains(other, chain) for other in behind[number]]
        return max([prod(sorted(chain)[:-1]), *ends])

    return max((chains(number, ()) for number in range(len(loops))), default=1)


def _components(after: Any) -> list[set[Any]]:
    """Return the strongly connected components that hold a cycle (Tarjan, without recursion)."""
    index: dict[Any, int] = {}
    low: dict[Any, int] = {}
    stack: list[Any] = []
    held: set[Any] = set()
    components = []
    for root in after:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        held.add(root)
        work_list = [(root, iter(after[root]))]
        while work_list:
            state, rest = work_list[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    held.add(other)
                    work_list.append((other, iter(after[other])))
                    break
                if other in held:
                    low[state] = min(low[state], index[other])
            else:
                work_list.pop()
                if work_list:
                    low[work_list[-1][0]] = min(low[work_list[-1][0]], low[state])
                if low[state] == index[state]:
                    component = set()
                    while True:
                        one = stack.pop()
                        held.discard(one)
                        component.add(one)
                        if one == state:
                            break
                    if len(component) > 1 or state in after[state]:
                        components.append(component)
    return components


def _is_nested(graph: _Graph, loop: set[tuple[int, int]]) -> bool:
    """Return whether one text leads from a state of the loop back to it in two ways."""
    if any(len(graph.after[state].get(other, ())) > 1 for state in loop for other in loop):
        return True
    pairs: dict[Any, list[Any]] = {}
    new = [(state, state) for state in loop]
    while new:
        pair = new.pop()
        if pair not in pairs:
            one, two = pair
            pairs[pair] = [
                (a, b) for a in graph.after[one] if a in loop for b in graph.after[two] if b in loop and a[1] == b[1]
            ]
            new += pairs[pair]
    return any(
        any(a == b for a, b in component) and any(a != b for a, b in component) for component in _components(pairs)
    )


def _overlap(graph: _Graph, loop: set[Any], later: set[Any], on_the_way: set[Any]) -> bool:
    """Return whether one text leads round the loop, from it to the later loop, and round that.

    Three ways read it side by side; an edge that ends the second one's way and begins it again makes that a cycle.
    """
    if not on_the_way:
        return False
    triples: dict[Any, list[Any]] = {}
    new = [(state, state, target) for state in loop for target in later if state[1] == target[1]]
    starts = set(new)
    while new:
        triple = new.pop()
        if triple in triples:
            continue
        one, two, three = triple
        triples[triple] = [
            (a, b, c)
            for a in graph.after[one]
            if a in loop
            for c in graph.after[three]
            if c in later and c[1] == a[1]
            for b in graph.after[two]
            if b[1] == a[1] and b in on_the_way
        ]
        if two == three and (one, one, three) in starts:
            triples[triple].append((one, one, three))
        new += triples[triple]
    return any(
        two == three and (one, one, three) in component and one != two
        for component in _components(triples)
        for one, two, three in component
    )


def _reached(edges: Any, states: set[Any]) -> set[Any]:
    reached: set[Any] = set()
    new = list(states)
    while new:
        state = new.pop()
        if state not in reached:
            reached.add(state)
            new += edges.get(state, ())
    return reached


def pumps(pattern: str | bytes, flags: int, how: str) -> Iterator[tuple[str, str]]:
    """Yield texts that may cost much: what leads to a repeat, and what goes round it."""
    graph = _Graph(_Builder(pattern, flags, how))
    ways = _words(graph, [state for state in graph.after if state[0] == _START])
    for loop in _components(graph.after):
        for state in loop:
            for after in graph.after[state]:
                if after in loop:
                    back = _words(graph, [after]).get(state)
                    if back is not None:
                        yield ways[state], chr(after[1]) + back


def _words(graph: _Graph, starts: list[Any]) -> dict[Any, str]:
    """Return a shortest text that leads to each state."""
    words = dict.fromkeys(starts, "")
    new = list(starts)
    for state in new:
        for other in graph.after[state]:
            if other not in words:
                words[other] = words[state] + chr(other[1])
                new.append(other)
    return words
