"""A chat program starts ``envdoctor mcp`` and calls its tools, by the SDK's own client over stdio."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from envdoctor import __version__

ROOT = Path(__file__).resolve().parents[2]
TORCH_2_5_0 = str(ROOT / "fixtures/environments/glm4-batch-nan.json")


def called(*calls: tuple[str, dict[str, Any]]) -> tuple[Any, list[Any]]:
    """Start the server, and return its tools and what it says to each call."""
    from mcp import Client, StdioServerParameters, stdio_client  # half a second, which each process that collects had

    async def talk() -> tuple[Any, list[Any]]:
        server = StdioServerParameters(command=sys.executable, args=["-m", "envdoctor", "mcp"], cwd=ROOT)
        async with Client(stdio_client(server)) as client:
            assert client.server_info.version == __version__
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(talk())


def test_each_tool_answers_as_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "rope_theta": 10000.0}')
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text('{"model_type": "llama", "rope_theta": 500000.0}')
    tools, (check, memory, diff, explain, plan) = called(
        ("check", {"facts": TORCH_2_5_0}),
        (
            "memory",
            {
                "model": "Qwen/Qwen2.5-7B-Instruct",
                "gpu": "4090",
                "method": "full",
                "settings": {"recipe.max_length": 2048},
            },
        ),
        ("diff_revision", {"repo": str(tmp_path), "old": str(tmp_path / "new")}),
        ("explain", {"error": "ImportError: cannot import name 'SampleOutput' from 'transformers.generation.utils'"}),
        ("plan", {"model": "THUDM/glm-4-9b-chat-hf", "target": {"gpu": "no such card"}}),
    )
    assert {tool.name for tool in tools} == {"check", "memory", "plan", "diff_revision", "explain"}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert check.structured_content["exit_code"] == 1 and check.structured_content["status"] == "complete"
    assert "torch-2-5-0-glm4-batch-nan" in [finding["id"] for finding in check.structured_content["findings"]]
    assert check.content[0].text == check.structured_content["text"] and "use torch 2.4.1" in check.content[0].text
    assert memory.structured_content["exit_code"] == 1 and "GiB" in memory.content[0].text
    assert "rope_theta" in diff.content[0].text and diff.structured_content["findings"]
    assert explain.structured_content["known"] and "SampleOutput" in explain.content[0].text
    assert plan.is_error and "no such card" in plan.content[0].text


#: A tool, its arguments, and what is said of them.
HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("check", {"modell": "Qwen/Qwen2.5-7B"}, "check takes no modell; it takes model, recipe"),
    ("check", {"lock": "/no/such/file"}, "--lock /no/such/file: cannot be read"),
    ("check", {"lock": "a", "report": "b"}, "give one of them"),
    ("check", {"facts": "-"}, "--facts -: is empty"),
    ("check", {"python": "\0"}, "does not exist"),
    ("check", {"settings": {"recipe.batch_size": "\x1b[31mred"}}, "a number is expected"),
    ("check", {"target": {"gpuu": "A100"}}, "a target has python, platform, gpu and driver, not gpuu"),
    ("check", {"target": {"python": 3}}, "--target-python 3: a release of Python is expected"),
    ("check", {"model": 3}, "string"),
    ("check", {"recipe": ["x"] * 200}, "100"),
    ("explain", {"error": "y" * 1_100_000}, "1000000"),
    ("memory", {"model": "Qwen/Qwen2.5-7B", "gpu_memory": -1}, "at least 0"),
    ("diff_revision", {"repo": "../../etc", "offline": True}, ""),
    ("plan", {"requirements": ["wandb --index-url=http://127.0.0.1:1"]}, "compares no version"),
    ("fix", {}, "fix"),
]


def test_each_hostile_argument_is_one_sentence() -> None:
    _, answers = called(*((tool, arguments) for tool, arguments, _ in HOSTILE))
    for answer, (tool, arguments, says) in zip(answers, HOSTILE, strict=True):
        text = answer.content[0].text
        assert answer.is_error and says in text, (tool, str(arguments)[:80], text[-500:])
        assert "Traceback" not in text and "itself failed" not in text
        assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
