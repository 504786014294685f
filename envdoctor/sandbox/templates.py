"""jinja2's sandbox as transformers renders chat templates in it, for bounded children: it bounds neither time nor
memory."""

import json
from typing import Any


class Refusal(Exception):
    """The template called raise_exception."""


def template_environment() -> Any:
    """The environment in which transformers renders chat templates, with everything that varies held still."""
    import gc
    from datetime import datetime

    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what the assistant said; the text is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

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
