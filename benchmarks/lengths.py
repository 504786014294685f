"""Lengths of 100,000 rows: seconds, the longest, and padding, beside tokenising every row.

    python benchmarks/lengths.py [--rows 100000] [--seed 7] [--python PATH]

The rows are conversations of made-up words with log-normal lengths: mostly a language of letters, some Chinese, some
code and numbers, so that they differ in tokens a byte. The tokenizer is a byte-level BPE of 30,000 trained on a part of
them; the chat template is ChatML. ``sampled`` is what `envdoctor memory --data` does, children included; ``everything``
tokenises every row as the template renders it, with the same library and as many threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

from envdoctor.peak.summary import Spread, measure, spread
from envdoctor.system import Place

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
)
CUTOFF = 2048
BATCHES = (2, 4, 8, 16)

FULL = r"""
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "true"
from tokenizers import Tokenizer
data, file, out = sys.argv[1:]
tokenizer = Tokenizer.from_file(file)
started, lengths, texts = time.time(), [], []
def flush():
    lengths.extend(len(one.ids) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    texts.clear()
for line in open(data, encoding="utf-8"):
    turns = json.loads(line)["messages"]
    texts.append("".join("<|im_start|>%s\n%s<|im_end|>\n" % (turn["role"], turn["content"]) for turn in turns))
    if len(texts) == 1000:
        flush()
flush()
json.dump({"seconds": time.time() - started, "lengths": lengths}, open(out, "w"))
"""


def main() -> None:
    """Make the data, measure it twice, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, tokenizer = Path(folder, "train.jsonl"), Path(folder, "tokenizer.json")
        write_rows(data, options.rows, options.seed)
        train(data, tokenizer)
        print(f"{options.rows:,} rows, {data.stat().st_size / 1e6:.0f} MB, seed {options.seed}")
        started, computed = time.time(), cpu_seconds()
        place = Place(options.python, os.environ, folder, folder, "")
        by_batch = {}
        for batch in BATCHES:
            shown = {"data": data.name, "tokenizer": folder}
            by_batch[batch] = found = measure(str(data), folder, place, **shown, cutoff=CUTOFF, batch=batch)
            if len(by_batch) == 1:
                seconds, computed = time.time() - started, cpu_seconds() - computed
        out, before = Path(folder, "full.json"), cpu_seconds()
        subprocess.run([options.python, "-c", FULL, str(data), str(tokenizer), str(out)], check=True)
        full = json.loads(out.read_text())
    alone = cpu_seconds() - before
    print(
        f"seconds       sampled {seconds:.1f} ({found['looked_at']:,} rows tokenised), everything {full['seconds']:.1f}"
    )
    print(f"of processors sampled {computed:.1f}, everything {alone:.1f}")
    for batch, section in by_batch.items():
        print_batch(section, spread(full["lengths"], CUTOFF, batch), batch)


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def print_batch(ours: Spread, theirs: Spread, batch: int) -> None:
    """Percentiles once, then the padding of batches of this size."""
    if batch == BATCHES[0]:
        for name in ("p50", "p90", "p99", "longest", "cut"):
            print(f"{name:<13} sampled {ours[name]:,}, everything {theirs[name]:,}")
    for name in ("random", "grouped", "packed"):
        said, is_so = ours["padding"][name], theirs["padding"][name]
        apart = 100 * (said - is_so)
        print(f"batch {batch:<3}{name:<8} sampled {said:.1%}, everything {is_so:.1%}, {apart:+.1f} points")


def write_rows(path: Path, rows: int, seed: int) -> None:
    """Conversations of one to three exchanges, about 1,100 bytes each in the middle of a long tail."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]
    words = ["".join(draw.choices(syllables, k=draw.choice((1, 1, 2, 2, 3)))) for _ in range(40_000)]
    signs = [chr(draw.randrange(0x4E00, 0x9FA5)) for _ in range(3000)]
    weights = list(accumulate(1 / (place + 3) for place in range(len(words))))

    def text(kind: str, size: int) -> str:
        if kind == "letters":
            return " ".join(draw.choices(words, cum_weights=weights, k=max(1, size // 6)))
        if kind == "chinese":
            return "".join(draw.choices(signs, cum_weights=weights[: len(signs)], k=max(1, size // 3)))
        return "\n".join(
            f"    {draw.choice(words)}[{draw.randrange(10**6)}] = {draw.random()}" for _ in range(max(1, size // 40))
        )

    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            kind = draw.choices(("letters", "chinese", "code"), (70, 20, 10))[0]
            size, turns = draw.lognormvariate(6.45, 1.1), draw.choice((1, 1, 2, 3))
            asked = [{"role": "user", "content": text(kind, int(size / turns / 5))} for _ in range(turns)]
            told = [{"role": "assistant", "content": text(kind, int(size / turns * 4 / 5))} for _ in range(turns)]
            messages = [turn for pair in zip(asked, told, strict=True) for turn in pair]
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def train(data: Path, path: Path) -> None:
    """A byte-level BPE of the first rows, and the template beside it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=30_000, special_tokens=["<|im_start|>", "<|im_end|>"], show_progress=False)
    with data.open(encoding="utf-8") as file:
        lines = [file.readline() for _ in range(3000)]
    texts = (turn["content"] for line in lines if line for turn in json.loads(line)["messages"])
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    path.with_name("tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))


if __name__ == "__main__":
    main()
