"""Environment variables: the allow-list, and that no credential passes."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from observing import shipped, values
from rooms import observer

from envdoctor.facts import ABSENT, Fact, FactSet, Unknown, public_facts
from envdoctor.observe import Request

variables = observer("variables")

NAMES = shipped().registry.names("env")


def observed(**environ: str) -> dict[str, object]:
    request = Request(environ=environ, platform="linux", variables=NAMES)
    return values(variables.observe(request))


def test_a_variable_that_is_not_set_is_absent_and_one_that_is_set_to_nothing_is_empty():
    found = observed(CUDA_VISIBLE_DEVICES="")
    assert (found["env.CUDA_HOME"], found["env.CUDA_VISIBLE_DEVICES"]) == (ABSENT, "")


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"])
def test_other_variables_never_appear(name):
    assert "SECRET-VALUE" not in repr(observed(**{name: "SECRET-VALUE"}))
    assert f"env.{name}" not in observed()


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("PIP_INDEX_URL", "https://me:pw@pypi.corp/simple", "https://***@pypi.corp/simple"),
        ("PIP_INDEX_URL", "https://token@pypi.corp/simple", "https://***@pypi.corp/simple"),
        ("PIP_INDEX_URL", "https://me:p@s/s:w@pypi.corp/simple", "https://***@pypi.corp/simple"),
        ("PIP_INDEX_URL", "me:pw@pypi.corp/simple", "***@pypi.corp/simple"),
        ("UV_INDEX_URL", "https://dl.corp/q1w2e3r4t5y6u7i8o9p0a1s2/org/simple", "https://dl.corp/***/org/simple"),
        ("UV_INDEX_URL", "https://host/t/abcdef0123456789/simple", "https://host/t/***/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://a/t/x-1 https://b/t/y_2/simple", "https://a/t/*** https://b/t/***/simple"),
        ("UV_INDEX_URL", "https://host/it/simple", "https://host/it/simple"),
        ("HF_ENDPOINT", "https://hf.corp/?access_token=abc&x=1", "https://hf.corp/?access_token=***&x=1"),
        ("HF_ENDPOINT", "https://hf.corp/?X-Amz-Signature=abc", "https://hf.corp/?X-Amz-Signature=***"),
        ("HF_ENDPOINT", "https://hf-mirror.com", "https://hf-mirror.com"),
        ("UV_DEFAULT_INDEX", "https://download.pytorch.org/whl/cu118", "https://download.pytorch.org/whl/cu118"),
        ("NCCL_SOCKET_IFNAME", "hf_abcdefghijklmnopqrstuvwxyz", "***"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "expandable_segments:True"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:/opt/x", "/usr/local/cuda/lib64:/opt/x"),
        ("CUDA_HOME", "/opt/\udcff", "/opt/?"),
    ],
)
def test_credentials_are_removed_and_the_rest_is_kept(name, text, shown):
    assert observed(**{name: text})["env." + name] == shown


secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=30).map(lambda t: "S3" + t)


@given(st.sampled_from(sorted(NAMES)), st.sampled_from(["https", "http", "git+ssh"]), secrets, secrets)
@example("PIP_INDEX_URL", "https", "S3user00", "S3pa/ss@w:0")
def test_no_part_of_a_password_survives(name, scheme, user, password):
    shown = observed(**{name: f"{scheme}://{user}:{password}@host/simple"})[f"env.{name}"]
    assert shown == f"{scheme}://***@host/simple"


@given(st.sampled_from(sorted(NAMES)), st.text(max_size=300))
def test_any_value_can_be_written_as_json(name, text):
    json.dumps(observed(**{name: text})[f"env.{name}"], ensure_ascii=False).encode("utf-8")


def test_a_value_that_is_too_long_is_unknown():
    assert isinstance(observed(LD_LIBRARY_PATH="/x:" * 5000)["env.LD_LIBRARY_PATH"], Unknown)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("CUDA_HOME", "/usr/local/cuda", "path"),
        ("CUDA_VISIBLE_DEVICES", "0,1", "0,1"),
        ("CUDA_VISIBLE_DEVICES", "GPU-1234", "<uuid>"),
        ("WHO_KNOWS", "x", "host"),
        ("PIP_INDEX_URL", "https://pypi.corp/simple", "host"),
    ],
)
def test_exports_know_how_private_a_variable_is(name, value, kind):
    facts = public_facts(FactSet([Fact(f"env.{name}", value, "", "")]), shipped().registry)
    shown = facts.value(f"env.{name}")
    assert isinstance(shown, Unknown) if kind in ("path", "host") else shown == kind
