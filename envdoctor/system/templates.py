"""jinja2's sandbox as transformers renders chat templates in it, for bounded children: it bounds neither time nor
memory."""

import json
from typing import Any


class Refusal(Exception):
    """The template called raise_exception."""


#: The marks around the parts that a template marks as the assistant's, if they are asked for.
MARKS = "\ue000", "\ue001"


def template_environment(marked: bool = False) -> Any:
    """Return the environment in which transformers renders chat templates, with everything that varies held still.

    ``marked`` puts :data:`MARKS` around the text that ``{% generation %}`` encloses.
    """
    import gc
    from datetime import datetime

    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks the assistant's words; the text is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("marks"), [], [], body).set_lineno(line) if marked else body

        def marks(self, caller: Any) -> str:
            return f"{MARKS[0]}{caller()}{MARKS[1]}"

    def raise_exception(message: Any) -> None:
        raise Refusal(str(message))

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format: str) -> str:
        return datetime(2024, 7, 26, 12, 0, 0).strftime(format)

    gc.enable()  # a template may make as many circles as it likes
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
