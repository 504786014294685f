"""Whatever case of attention fails, its script is short, runs with torch alone and computes what the probe did."""

import itertools
import json
import random
import subprocess
from typing import Any

import pytest
from planted import inside, pure

from envdoctor.experiments import JudgedCase, Verdict
from envdoctor.experiments.probe.reproducer import script_of

MASKS = ("none", "causal", "alltrue", "bool_left", "inf_left", "min_left", "bool_right", "bool_key", "bool_left_dead")
LAYOUTS = ("bhsd", "bshd", "packed", "offset", "expanded", "expanded_batch")
CASES = [
    {"mask": mask, "layout": layout, "dout": dout, "stress": stress, "gqa": gqa, "backend": backend}
    for mask, layout, dout, stress, gqa, backend in itertools.product(
        (*MASKS, "bool_band", "f32_right"),
        LAYOUTS,
        ("hf", "strided", "expand", "plain"),
        ("unit", "x3", "shift-", "shift+", "outlier"),
        ("", "repeat", "flag"),
        ("default", "flash"),
    )
    if (not gqa or layout == "bshd") and not (dout == "expand" and mask == "min_left")
]


USUAL = {"mask": "none", "layout": "bhsd", "dout": "hf", "stress": "unit", "gqa": ""}


def failing(backend: str = "default", dtype: str = "bf16", **params: Any) -> JudgedCase:
    heads = 4 if params.get("gqa") else 2
    sizes = {"B": 2, "H": heads, "Hk": 2, "L": 20, "S": 20, "D": 16, "seed": 1005}
    observation = {
        "judge": "attention",
        "device": "cpu",
        "dtype": dtype,
        "backend": backend,
        "params": {**sizes, **params},
    }
    return JudgedCase(observation, Verdict("fail", "nan-gradient", ("dq",), None, "dq 5"))


def test_every_case_has_a_short_script_that_python_can_read() -> None:
    for place, entry in enumerate(CASES):
        script = script_of(failing(**entry), {"build": {"torch": "2.13.0"}, "device": {"cudnn": "9.20.0"}}, 5)
        assert script is not None and len(script) <= 30, entry
        assert script[0] == "# torch 2.13.0, cpu, cuDNN 9.20.0, envdoctor probe --seed 5"
        assert "dq 5" in script[1]
        if place % 97 == 0:
            compile("\n".join(script), "bug.py", "exec")


@pytest.mark.parametrize(
    "params",
    [{"mask": "odd"}, {"stress": "odd"}, {"layout": "odd"}, {"dout": "odd"}, {"S": "192; import os"}, {"seed": None}],
)
def test_a_case_that_is_not_understood_has_no_script(params: dict[str, Any]) -> None:
    assert script_of(failing(**{**USUAL, **params}), {}) is None


def test_no_line_of_a_script_comes_from_an_observation() -> None:
    wrong = failing(**USUAL)
    words = JudgedCase({**wrong.observation, "reproducer": "import os"}, wrong.verdict)
    assert script_of(words, {}) == script_of(wrong, {})
    assert script_of(JudgedCase({"judge": "rounding", "reproducer": "import os"}, Verdict("fail")), {}) is None


def _script(dtype: str, case: dict[str, Any], backend: str = "default") -> str:
    params = {**case, "seed": 1000 + case["number"]}
    return "\n".join(script_of(failing(backend, dtype, **params), {}) or ())


@pytest.mark.parametrize("suite", ["quick", "full"])
def test_every_case_of_the_probe_has_a_script_of_at_most_thirty_lines(suite: str) -> None:
    for case in pure("shapes").cases(suite):
        lines = _script("bf16", case, "flash").splitlines()
        assert 0 < len(lines) <= 30
        assert max(map(len, lines)) <= 130, lines
        compile("\n".join(lines), "script", "exec")


def _sample() -> list[dict[str, Any]]:
    """The first case with each mask, layout, stress, …, and every seventh: sizes are numbers in a script."""
    chosen, had = [], set()
    for case in pure("shapes").cases("quick"):
        new = {(key, value) for key, value in case.items() if isinstance(value, str)} - had
        if new or case["number"] % 7 == 0:
            chosen.append(case)
            had |= new
    return chosen


@pytest.mark.torch
def test_scripts_run_on_the_inputs_of_the_probe_and_print_finite_errors(torch_python: str) -> None:
    asked = [
        {"grid": "quick", "number": case["number"], "dtype": dtype, "script": _script(dtype, case)}
        for case in _sample()
        for dtype in ("bf16", *(["fp32"] if case["number"] % 42 == 0 else []))
    ]
    printed = inside(torch_python, "same_inputs.py", read="\n".join(map(json.dumps, asked)))
    answers = [json.loads(line) for line in printed.splitlines()]
    for answer, one in zip(answers, asked, strict=True):
        assert answer["differs"] == [], (answer, one["script"])
        assert answer["printed"][0] == "not finite in out, dq, dk, dv: [0, 0, 0, 0]"
        assert answer["printed"][1].startswith("relative errors: [")


@pytest.mark.slow  # the test above runs scripts of the quick suite
@pytest.mark.torch
def test_on_a_healthy_torch_no_script_finds_anything(torch_python: str) -> None:
    chosen = random.Random(7).sample(CASES, 30)
    scripts = ["\n".join(script_of(failing(**entry), {}) or ()) for entry in chosen]
    code = (
        "import contextlib, io, json, re, sys\n"
        "for script in json.load(sys.stdin):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        try: exec(script, {})\n"
        "        except (RuntimeError, TypeError) as error:\n"
        "            if 'No available kernel' in str(error) or 'enable_gqa' in str(error): continue\n"
        "            raise\n"
        "    lost, off = re.findall(r'\\[.*?\\]', out.getvalue())\n"
        "    assert not any(json.loads(lost)) and max(json.loads(off)) < 0.2, (script, out.getvalue())\n"
        "print('all right')\n"
    )
    done = subprocess.run(
        [torch_python, "-W", "ignore", "-c", code],
        input=json.dumps(scripts),
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.stdout.strip() == "all right", done.stderr[-3000:]
