"""Wheels: which release has one here is said for a list of versions, and no fix offers one that has none."""

from __future__ import annotations

import pytest

LINUX = {"os.platform": "linux", "os.arch": "x86_64", "os.libc": "glibc", "os.libc_version": "2.35"}
HERE = {**LINUX, "python.version": "3.12.3"}
RULES = ("release-has-no-wheel-here", "no-release-has-a-wheel-here")


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        (
            {**LINUX, "python.version": "3.13.1", "pkg.torch": "2.4.1"},
            [
                "torch 2.4.1 has no released wheel for Python 3.13 on Linux x86_64; nearest with one: 2.5.0",
                "python -m pip install torch==2.5.0",
            ],
        ),
        (
            {**HERE, "os.libc_version": "2.31", "pkg.vllm": "0.20.2"},
            [
                "vllm 0.20.2 has no released wheel for glibc 2.31; nearest with one: 0.19.1, 0.21.0",
                "python -m pip install vllm==0.21.0",
                "python -m pip install vllm==0.19.1",
            ],
        ),
        (
            {**HERE, "pkg.torch": "2.6.0+cu124", "pkg.xformers": "0.0.28.post1"},
            ["xformers 0.0.28.post1 has no released wheel for torch 2.6; nearest with one: 0.0.29.post2"],
        ),
        (
            {**HERE, "pkg.torch": "2.12.0", "pkg.flash-attn": "2.8.3"},
            ["flash-attn 2.8.3 has no released wheel for torch 2.12, nor has another release one here"],
        ),
        (
            {**HERE, "pkg.torch": "2.8.0+cu118", "pkg.mamba-ssm": "2.3.1"},
            ["mamba-ssm 2.3.1 has no released wheel for torch 2.8 for CUDA 11"],
        ),
    ],
)
def test_versions_alone_tell_what_has_no_wheel(run, facts_file, facts, lines):
    result = run("check", "--no-config", "--facts", facts_file(facts))
    assert result.code == 0, "what is installed was built somehow: it is a note"
    for line in lines:
        assert line in result.out


def test_releases_with_a_wheel_are_not_mentioned(run, facts_file):
    facts = {**HERE, "pkg.torch": "2.8.0", "pkg.flash-attn": "2.8.3", "pkg.vllm": "0.11.0", "pkg.numpy": "2.2.0"}
    result = run("check", "--no-config", "--facts", facts_file(facts), "--format", "json")
    assert not [finding for finding in result.json["findings"] if finding["id"] in RULES]


@pytest.mark.parametrize(
    ("python", "offered"),
    [("3.11.9", ["python -m pip install tokenizers==0.13.3"]), ("3.12.3", [])],
)
def test_a_fix_offers_no_release_that_has_no_wheel_for_this_python(run, facts_file, python, offered):
    needs = ["tokenizers!=0.11.3,<0.14,>=0.11.1"]
    dist = [
        {"name": "transformers", "version": "4.33.3", "kind": "dist-info", "active": True, "requires": needs},
        {"name": "tokenizers", "version": "0.15.0", "kind": "dist-info", "active": True, "requires": []},
    ]
    packages = {"pkg.transformers": "4.33.3", "pkg.tokenizers": "0.15.0", "dist": dist}
    path = facts_file({**LINUX, "python.version": python, **packages})
    result = run("check", "--no-config", "--facts", path, "--format", "json")
    conflicts = [finding for finding in result.json["findings"] if finding["id"].startswith("requirement-conflict")]
    assert conflicts
    fixes = [fix for finding in conflicts for fix in finding["fixes"] if fix["kind"] == "constraint"]
    assert [command for fix in fixes for command in fix["commands"]] == offered
    if not offered:
        withheld = [fix["withheld"] for finding in conflicts for fix in finding["withheld_fixes"]]
        assert withheld == ["tokenizers 0.13.3 has no wheel for Python 3.12 on Linux x86_64"]


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("cp310-cp310-manylinux_2_17_x86_64", 1),
        ("cp312-cp312-manylinux_2_17_aarch64", 1),
        ("cp312-cp312-manylinux_2_39_x86_64", 0),
        ("cp313-abi3-manylinux_2_17_x86_64", 0),
        ("cp312-cp312-manylinux_2_17_x86_64", 0),
    ],
)
def test_compiled_modules_that_cannot_be_loaded_are_an_error(run, facts_file, tag, code):
    dist = [{"name": "numpy", "version": "1.26.4", "kind": "dist-info", "active": True, "tags": [tag]}]
    result = run("check", "--no-config", "--facts", facts_file({**HERE, "pkg.numpy": "1.26.4", "dist": dist}))
    assert result.code == code
    assert ("compiled-modules-for-another-python" in result.out) is (code == 1)


def test_of_a_package_with_two_metadata_folders_neither_is_believed(run, facts_file):
    one = {"name": "numpy", "version": "1.26.4", "kind": "dist-info", "active": True}
    dist = [
        {**one, "tags": ["cp310-cp310-manylinux_2_17_x86_64"]},
        {**one, "version": "2.2.0", "tags": ["cp312-cp312-manylinux_2_17_x86_64"]},
    ]
    result = run("check", "--no-config", "--facts", facts_file({**HERE, "pkg.numpy": "2.2.0", "dist": dist}))
    assert "compiled-modules-for-another-python" not in result.out


def test_wheel_tags_that_this_interpreter_does_not_take_are_told_from_a_facts_file(run, facts_file):
    tags = ["cp310-cp310-manylinux_2_28_x86_64"]
    dist = [{"name": "xformers", "version": "0.0.28", "kind": "dist-info", "active": True, "tags": tags}]
    path = facts_file({**HERE, "pkg.xformers": "0.0.28", "dist": dist})
    out = run("check", "--no-config", "--facts", path).out
    assert "xformers 0.0.28 is built for CPython 3.10, which is not what runs here" in out
    dist[0]["tags"] = ["not-a-wheel-tag", "x"]
    path = facts_file({**HERE, "pkg.xformers": "0.0.28", "dist": dist})
    assert run("check", "--no-config", "--facts", path).code in (0, 1)
