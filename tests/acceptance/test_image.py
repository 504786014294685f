"""``check --image``: the environment inside an image in a file, judged like a folder."""

from __future__ import annotations

import errno
import os

from images import SITE, layer, oci_archive, package, python


def test_an_image_is_judged_like_a_folder(run, tmp_path):
    torch = [(f"{SITE}/torch/__init__.py", b""), (f"{SITE}/torch/version.py", b"__version__ = '2.5.0+cu118'\n")]
    lower = layer(*python(), *torch, *package("torch", "2.5.0"), *package("transformers", "4.40.0"))
    config = {"architecture": "amd64", "config": {"Env": ["PATH=/usr/local/bin", "CUDA_LAUNCH_BLOCKING=1"]}}
    oci_archive(tmp_path / "train.tar", [lower, layer(*package("tokenizers", "0.20.1"))], config)
    told = run("check", "--image", "train.tar")
    assert told.code == 1 and told.out.startswith("Image        train.tar (python 3.11.9, linux x86_64)\n")
    assert "error[tokenizers-outside-transformers-window]" in told.out and "torch 2.5.0+cu118" in told.out
    facts = run("facts", "--image", "train.tar", "--format", "json").json["facts"]
    assert facts["environment.path"] == "/usr/local" and facts["env.CUDA_LAUNCH_BLOCKING"] == "1"


def test_what_is_no_image_is_a_sentence(run, tmp_path):
    (tmp_path / "train.tar").write_text("docker save train")
    told = run("check", "--image", "train.tar")
    assert (told.code, told.err) == (3, "envdoctor: --image train.tar is damaged, cut off, or no image\n")
    gone = run("check", "--image", "gone.tar")
    assert (gone.code, gone.err) == (2, f"envdoctor: --image gone.tar cannot be read: {os.strerror(errno.ENOENT)}\n")
