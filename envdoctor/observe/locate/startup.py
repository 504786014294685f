"""Code that runs when Python starts: the ``import`` lines of ``.pth`` files, sitecustomize.py and usercustomize.py.

It is read as a syntax tree, and never run.
"""

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

LONGEST = 1 << 16
_TOUCHES = (
    r"\bsys\s*\.\s*(?:path|meta_path|path_hooks|path_importer_cache|modules(?!\s*\.get\b|\s*\[\s*__name__\s*\]))\b|"
    r"\b(?:from\s+sys\s+import|sys\s+as)\b|\b(?:addsitedir|addpackage)\b|"
    r"\b__import__\(\s*['\"]sys|\bsetattr\(\s*sys\b|\bgetattr\(\s*sys\s*,\s*['\"](?:path|meta_path|modules)"
)
_IMPORTS = (
    r"(?:\bimport[ \t]+|\bfrom[ \t]+|__import__\(\s*[\"']|import_module\(\s*[\"'])([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)"
)


class Change(NamedTuple):
    """A folder that the code puts into ``sys.path``: before the entry ``at``, or behind all others (None); ``site``
    where its ``.pth`` files count too."""

    folder: str
    at: int | None
    site: bool = False


class Startup(NamedTuple):
    """Code of a file, and whether what it does to the import path is ``known``."""

    file: str
    code: str
    known: bool

    @property
    def imports(self) -> set[str]:
        """The modules that it names behind ``import``, by their first names."""
        found = re.findall(_IMPORTS, self.code)
        return {name.strip().partition(".")[0] for names in found for name in names.split(",")}


def touches(code: str) -> bool:
    """Whether the code names anything that decides where modules come from."""
    return ("sys" in code or "add" in code) and re.search(_TOUCHES, code) is not None


def read_startup(file: str, code: str) -> tuple[Startup, tuple[Change, ...]]:
    """Read what the code does to the import path, as far as all of it is literal."""
    changes: tuple[Change, ...] = ()
    known = not touches(code)
    if not known and len(code) <= LONGEST:
        import ast
        import warnings

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                body = ast.parse(code).body
            reader = _Reader(ast)
            changes = tuple(change for statement in body for change in reader.changes(statement))
            known = not reader.lost
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return Startup(file, code, known), changes


class _Reader:
    """Reads one statement after another; ``lost`` when one of them may do more than is understood."""

    def __init__(self, ast: Any) -> None:
        self._ast, self._texts, self.lost = ast, dict[str, str](), False

    def changes(self, statement: Any) -> Iterator[Change]:
        ast = self._ast
        match statement:
            case ast.Pass():
                return
            case ast.Import(names=names) if all(one.name != "sys" or one.asname in (None, "sys") for one in names):
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (text := self._text(value)) is not None:
                self._texts[name] = text
                return
        found = self._of_path(statement)
        if found is None:
            self.lost = self.lost or touches(ast.unparse(statement))
            names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
            for name in names:
                self._texts.pop(name, None)  # it may be bound anew
            return
        if all(os.path.isabs(change.folder) and "\0" not in change.folder for change in found):
            yield from found
        else:
            self.lost = True

    def _text(self, node: Any) -> str | None:
        match node:
            case self._ast.Constant(value=str(text)):
                return text
            case self._ast.Name(id=name):
                return self._texts.get(name)
        return None

    def _of_path(self, statement: Any) -> list[Change] | None:
        """The folders that a statement adds; None where it does something else."""
        ast = self._ast
        match statement:
            case ast.Expr(value=ast.Call(func=func, args=[*_, last] as arguments, keywords=[])):
                text = self._text(last)
                return None if text is None else self._called(ast.unparse(func), arguments, text)
            case ast.AugAssign(target=target, op=ast.Add(), value=value) if ast.unparse(target) == "sys.path":
                return self._listed(value, None)
            case ast.Assign(targets=[target], value=value):
                match ast.unparse(target), value:
                    case "sys.path[0:0]" | "sys.path[:0]", _:
                        return self._listed(value, 0)
                    case "sys.path" | "sys.path[:]", ast.BinOp(left=left, op=ast.Add(), right=right):
                        if ast.unparse(right) == "sys.path":
                            return self._listed(left, 0)
                        return self._listed(right, None) if ast.unparse(left) == "sys.path" else None
        return None

    def _called(self, function: str, arguments: list[Any], text: str) -> list[Change] | None:
        match function, arguments:
            case "sys.path.insert", [self._ast.Constant(value=int(place)), _] if type(place) is int and place >= 0:
                return [Change(text, place)]
            case "sys.path.append" | "site.addsitedir", [_]:
                return [Change(text, None, function == "site.addsitedir")]
        return None

    def _listed(self, node: Any, index: int | None) -> list[Change] | None:
        if not isinstance(node, (self._ast.List, self._ast.Tuple)):
            return None
        texts = [self._text(one) for one in node.elts]
        folders = [text for text in texts if text is not None]
        if len(folders) < len(texts):
            return None
        return [Change(folder, index) for folder in (folders if index is None else reversed(folders))]
