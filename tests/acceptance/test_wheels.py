"""Wheels: which release has one here is said for a list of versions, and no fix offers one that has none."""

import pytest

LINUX = {"os.platform": "linux", "os.arch": "x86_64", "os.libc": "glibc"}


@pytest.fixture
def check(run, facts_file):
    """``check`` of packages on this machine, and of what is installed of them: ``dist`` has it by name."""

    def check(*words, dist=None, python="3.12.3", libc="2.35", **versions):
        kept = [
            {"name": name, "version": versions[name], "kind": "dist-info", "active": True, **more}
            for name, told in (dist or {}).items()
            for more in told
        ]
        facts = {f"pkg.{name.replace('_', '-')}": version for name, version in versions.items()}
        facts |= {**LINUX, "os.libc_version": libc, "python.version": python, **({"dist": kept} if kept else {})}
        return run("check", "--no-config", "--facts", facts_file(facts), *words)

    return check


def test_versions_alone_tell_what_has_no_wheel(check):
    result = check(libc="2.31", vllm="0.20.2")
    assert result.code == 0, "what is installed was built somehow: it is a note"
    said = "vllm 0.20.2 has no released wheel for glibc 2.31; nearest with one: 0.19.1, 0.21.0"
    for line in (said, "python -m pip install vllm==0.21.0", "python -m pip install vllm==0.19.1"):
        assert line in result.out
    said = "flash-attn 2.8.3 has no released wheel for torch 2.12, nor has another release one here"
    assert said in check(torch="2.12.0", flash_attn="2.8.3").out
    found = check("--format", "json", torch="2.8.0", flash_attn="2.8.3", vllm="0.11.0", numpy="2.2.0").found
    assert not {"release-has-no-wheel-here", "no-release-has-a-wheel-here"} & set(found)


@pytest.mark.parametrize(
    ("system", "line", "rule", "said"),
    [
        ("windows-x86_64", "bitsandbytes==0.41.1", "wheel-holds-files-for-another-system", "0.43.0"),
        ("linux-aarch64", "bitsandbytes==0.42.0", "wheel-holds-files-for-another-system", "0.46.0"),
        ("windows-x86_64", "bitsandbytes==0.43.1", None, ""),
        ("linux-x86_64", "bitsandbytes==0.41.1", None, ""),
        ("windows-x86_64", "deepspeed==0.12.6", "release-has-no-wheel-here", "0.16.3"),
        ("linux-x86_64", "deepspeed==0.12.6", None, ""),
        ("linux-x86_64", "vllm==0.6.3", "release-has-no-wheel-here", "0.5.3"),
    ],
)
def test_a_release_without_files_for_the_system_is_told(run, tmp_path, system, line, rule, said):
    (tmp_path / "r.txt").write_text(f"torch==2.3.1\n{line}\n")
    target = ("--target-python", "3.10", "--target-platform", system, "--target-gpu", "4090")
    found = run("check", "--lock", "r.txt", *target, "--format", "json").found
    about = [name for name in found if "wheel" in name and not found[name].get("superseded_by")]
    assert about == ([rule] if rule else [])
    assert said in str(rule and found[rule]["fixes"])


@pytest.mark.parametrize(
    ("python", "offered"),
    [("3.11.9", ["tokenizers==0.13.3", "transformers==4.35.2"]), ("3.12.3", ["transformers==4.35.2"])],
)
def test_a_fix_offers_no_release_that_has_no_wheel_for_this_python(check, python, offered):
    requires = ["tokenizers!=0.11.3,<0.14,>=0.11.1"]
    dist = {"transformers": [{"requires": requires}], "tokenizers": [{"requires": []}]}
    result = check("--format", "json", dist=dist, python=python, transformers="4.33.3", tokenizers="0.15.0")
    conflicts = [finding for finding in result.json["findings"] if finding["id"].startswith("requirement-conflict")]
    assert conflicts
    fixes = [fix for finding in conflicts for fix in finding["fixes"] if fix["kind"] == "constraint"]
    assert [command for fix in fixes for command in fix["commands"]] == [
        f"python -m pip install {one}" for one in offered
    ]
    withheld = [fix["withheld"] for finding in conflicts for fix in finding["withheld_fixes"]]
    assert offered[1:] or withheld == ["tokenizers 0.13.3 has no wheel for Python 3.12 on Linux x86_64"]


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        (["cp310-cp310-manylinux_2_17_x86_64"], 1),
        (["cp312-cp312-manylinux_2_17_aarch64"], 1),
        (["cp312-cp312-manylinux_2_39_x86_64"], 0),
        (["cp313-abi3-manylinux_2_17_x86_64"], 0),
        (["cp312-cp312-manylinux_2_17_x86_64"], 0),
        # With two metadata folders neither is believed.
        (["cp310-cp310-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_17_x86_64"], 0),
    ],
)
def test_compiled_modules_that_cannot_be_loaded_are_an_error(check, tags, code):
    dist = [{"tags": [tag], "version": version} for tag, version in zip(tags, ("1.26.4", "2.2.0"), strict=False)]
    result = check(dist={"numpy": dist}, numpy=dist[-1]["version"])
    assert result.code == code
    assert ("compiled-modules-for-another-python" in result.out) is (code == 1)


@pytest.mark.parametrize("tags", [["cp310-cp310-manylinux_2_28_x86_64"], ["not-a-wheel-tag", "x"]])
def test_wheel_tags_that_this_interpreter_does_not_take_are_told_from_a_facts_file(check, tags):
    result = check(dist={"xformers": [{"tags": tags}]}, xformers="0.0.28")
    said = "xformers 0.0.28 is built for CPython 3.10, which is not what runs here"
    assert (said in result.out) is (len(tags) == 1) and result.code in (0, 1)
