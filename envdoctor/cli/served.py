"""The server of the Model Context Protocol: commands as tools of a chat program, over standard input and output."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypedDict

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from envdoctor import __version__
from envdoctor.app import api
from envdoctor.cli.output import sentence_of
from envdoctor.report.report import Report
from envdoctor.system.clean import clean

#: An argument: an error message or a log is pasted whole. 1,000,000 characters, and 100 items, at most.
Text = Annotated[str, Field(max_length=1_000_000)]
Texts = Annotated[list[Text], Field(max_length=100)]
Table = Annotated[dict[str, Any], Field(max_length=100)]

#: Of a finding in JSON.
_OF_A_FINDING = ("id", "severity", "confidence", "status", "message", "why", "locations", "fixes", "evidence", "gate")
_INSTRUCTIONS = (
    "Judges an environment for fine-tuning LLMs before training starts. Nothing is installed or changed, and no code "
    "of what is judged is imported. exit_code is 0: nothing at the gate, 1: findings at the gate, 3: the job could not "
    "be done. The text says what was not checked: silence about it does not mean that it is right."
)


class JudgedOutcome(TypedDict):
    """What a command found: its exit code, ``complete`` or ``incomplete``, the report as text, and its findings."""

    exit_code: int
    status: str
    text: str
    findings: list[dict[str, Any]]


class TextAnswer(TypedDict):
    """A text. ``known``: anything is known of the error message, or a set of versions was found."""

    known: bool
    text: str


class _Server(MCPServer[Any]):
    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool. Refuse an unknown argument: the caller would believe that it counted."""
        parameters = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        if unknown := sorted(set(arguments) - set(parameters.get(name, arguments))):
            raise ToolError(clean(f"{name} takes no {', '.join(unknown)}; it takes {', '.join(parameters[name])}"))
        return await super().call_tool(name, arguments, context)


def server() -> MCPServer[Any]:
    """Return the server with its tools."""
    offered = _Server("envdoctor", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
    for tool, network in ((check, False), (memory, False), (plan, True), (diff_revision, True), (explain, False)):
        about = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=network)
        offered.add_tool(_in_a_sentence(tool), annotations=about)
    return offered


def check(  # noqa: PLR0917
    model: Text | None = None,
    recipe: Texts | None = None,
    code: Texts | None = None,
    settings: Table | None = None,
    python: Text | None = None,
    lock: Text | None = None,
    report: Text | None = None,
    facts: Text | None = None,
    target: Table | None = None,
) -> Annotated[CallToolResult, JudgedOutcome]:
    """Judge an environment for a model, a recipe (files) and code (files).

    At most one of python, lock, report and facts names the environment; without one it is that of this server.
    settings are facts: {"recipe.batch_size": 2}. target is the machine that is meant: {"python": "3.11", "platform":
    "linux-x86_64", "gpu": "A100", "driver": "535"}.
    """
    environment = {"python": python, "lock": lock, "report": report, "facts": facts}
    run = {"model": model, "recipe": recipe or (), "code": code or (), "settings": settings, "target": target}
    return _reported(api.check(**environment, **run))  # type: ignore[arg-type]


def memory(  # noqa: PLR0917
    model: Text | None = None,
    recipe: Texts | None = None,
    gpu: Text | None = None,
    gpu_memory: float | None = None,
    method: Text | None = None,
    settings: Table | None = None,
    python: Text | None = None,
    lock: Text | None = None,
) -> Annotated[CallToolResult, JudgedOutcome]:
    """Predict the peak of GPU memory of a run: does it fit?

    At most one of python and lock names the environment. gpu is a name such as A100-80GB, gpu_memory its free
    memory in GiB, method full, lora, qlora, peft, infer or serve.
    settings are facts: {"recipe.max_length": 4096}.
    """
    machine: dict[str, Any] = {"gpu": gpu, "gpu_memory": gpu_memory, "python": python, "lock": lock}
    return _reported(api.memory(model=model, recipe=recipe or (), method=method, settings=settings, **machine))


def plan(  # noqa: PLR0917
    requirements: Texts | None = None,
    model: Text | None = None,
    recipe: Texts | None = None,
    python: Text | None = None,
    target: Table | None = None,
    code: Texts | None = None,
) -> Annotated[CallToolResult, TextAnswer]:
    """Return which versions to install for a model and code, or what to change in the environment of python.

    uv is asked, which uses the network. Nothing is installed.
    """
    run: dict[str, Any] = {"model": model, "recipe": recipe or (), "code": code or ()}
    planned = api.plan(*(requirements or ()), **run, python=python, target=target)
    text = f"{planned.because or ''}\n{planned.text}".lstrip()
    return _result(TextAnswer(known=not planned.because, text=text), text)


def diff_revision(
    repo: Text, old: Text | None = None, new: Text | None = None, offline: bool = False
) -> Annotated[CallToolResult, JudgedOutcome]:
    """Compare two revisions of a model of the Hub, or two folders: what changed, and can it hurt a fine-tune?

    A revision is a branch, a tag, a commit or a date (@2024-01-31). No code is run, and no weight is read.
    """
    return _reported(api.diff_revision(repo, old, new, offline=offline))


def explain(error: Text, python: Text | None = None, lock: Text | None = None) -> Annotated[CallToolResult, TextAnswer]:
    """Explain an error message, a traceback or a rule by its id, for the environment of python or lock if given."""
    environment = {name: value for name, value in (("python", python), ("lock", lock)) if value is not None}
    answer = api.explain(error, **environment)
    return _result(TextAnswer(known=answer.known, text=answer.text), answer.text)


def _in_a_sentence(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the tool: a failure becomes one sentence, as on the command line."""

    @wraps(tool)
    def called(**arguments: Any) -> Any:
        try:
            return tool(**arguments)
        except Exception as error:
            raise ToolError(clean(sentence_of(error)[0])) from None

    return called


def _reported(report: Report) -> CallToolResult:
    findings = [{name: finding[name] for name in _OF_A_FINDING} for finding in json.loads(report.to_json())["findings"]]
    text = report.written("terminal")
    return _result(JudgedOutcome(exit_code=report.exit_code, status=report.status, text=text, findings=findings), text)


def _result(structure: Any, text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structure)
