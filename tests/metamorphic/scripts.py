"""Runs written in Python: with a trainer of transformers, TRL or Unsloth, in a loop, answered by an engine."""

import json
from collections.abc import Callable
from typing import Any

from saying import Arguments, CannotSay, Code, Run, accelerated, deepspeed_file, dtype_of, say_training

_CONFIGS = {"sft": "SFTConfig", "dpo": "DPOConfig", "grpo": "GRPOConfig"}
_GPTQ = 'GPTQConfig(bits=4, dataset="c4", tokenizer=tokenizer)'


class _Script:
    """The pieces of a script: imports, what stands before the training, and the arguments of its calls."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.imports = ["import torch", "from datasets import load_dataset"]
        self.transformers = {"AutoModelForCausalLM", "AutoTokenizer"}
        self.lines = [f"MODEL = {run.model!r}"]
        self.liger = False

    def load(self) -> None:
        """Write the tokenizer and the model, as from_pretrained takes what is said of it."""
        run = self.run
        known = (
            "attn_implementation",
            "dtype",
            "torch_dtype",
            "device_map",
            "trust_remote_code",
            "quantization_config",
        )
        to = Arguments("from_pretrained", known)
        side = run.take("padding_side")
        told = f", padding_side={side!r}" if side else ""
        if run.take("trust_remote_code"):
            to["trust_remote_code"] = True
            told += ", trust_remote_code=True"
        self.lines.append(f"tokenizer = AutoTokenizer.from_pretrained(MODEL{told})")
        if (attn := run.take("attn")) is not None:
            to["attn_implementation"] = attn
        if (dtype := run.take("load_dtype")) is not None:
            new = "use_cache" in run.known("transformers", "TrainingArguments")
            to["dtype" if new else "torch_dtype"] = dtype_of(dtype)
        if (device := run.take("device_map")) is not None:
            to["device_map"] = device
        self._quantize(to)
        name = "AutoModelForCausalLM"
        if self.liger:
            name = "AutoLigerKernelForCausalLM"
            self.imports.append(f"from liger_kernel.transformers import {name}")
        self.lines.append(f"model = {name}.from_pretrained({', '.join(filter(None, ['MODEL', str(to)]))})")

    def _quantize(self, to: Arguments) -> None:
        run = self.run
        kind = run.take("quantization") or ("bnb-4bit" if run.left.get("method") == "qlora" else None)
        compute = run.take("quantization_compute_dtype")
        if kind == "gptq":
            self.transformers.add("GPTQConfig")
            to["quantization_config"] = Code(_GPTQ)
        elif kind in ("bnb-4bit", "bnb-8bit"):
            self.transformers.add("BitsAndBytesConfig")
            bits = Arguments("BitsAndBytesConfig", run.known("transformers", "BitsAndBytesConfig"))
            bits.put(True, "load_in_4bit" if kind == "bnb-4bit" else "load_in_8bit")
            if compute is not None:
                bits.put(dtype_of(compute), "bnb_4bit_compute_dtype")
            to["quantization_config"] = Code(f"BitsAndBytesConfig({bits})")
        elif kind is not None:
            raise CannotSay(f"from_pretrained: no configuration quantises to {kind}")

    def adapter(self) -> bool:
        """Write ``peft = LoraConfig(…)`` where the method asks for it."""
        run = self.run
        method = run.take("method")
        if method in (None, "full"):
            return False
        if method not in ("lora", "qlora"):
            raise CannotSay(f"a script with a trainer: recipe.method is never {method}")
        to = Arguments("LoraConfig", run.known("peft", "LoraConfig"), task_type="CAUSAL_LM")
        names = {"lora_r": "r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout", "dora": "use_dora"}
        names |= {"lora_targets": "target_modules", "lora_modules_to_save": "modules_to_save"}
        for fact, name in names.items():
            if (value := run.take(fact)) is not None:
                to.put(value, name)
        self.imports.append("from peft import LoraConfig, get_peft_model")
        self.lines.append(f"peft = LoraConfig({to})")
        return True

    def data(self, *, tokenized: bool) -> None:
        """Write how the samples are read; where they are tokenized here, to which length."""
        stream = ", streaming=True" if self.run.take("streaming") else ""
        self.lines.append(f'data = load_dataset("org/data", split="train"{stream})')
        if tokenized:
            length = self.run.take("max_length")
            cut = f", truncation=True, max_length={length}" if length is not None else ""
            self.lines.append(f'data = data.map(lambda row: tokenizer(row["text"]{cut}))')

    def text(self, *closing: str) -> str:
        """The whole script."""
        imports = [*self.imports, f"from transformers import {', '.join(sorted(self.transformers))}"]
        return "\n".join([*imports, "", *self.lines, *closing, ""])


def _trainer(run: Run, kind: str, made: Callable[[Arguments], tuple[list[str], str]] | None = None) -> str:
    """Write a script with Trainer, SFTTrainer, DPOTrainer or GRPOTrainer; ``made`` writes how its arguments come."""
    script = _Script(run)
    trl = kind in _CONFIGS
    name = _CONFIGS.get(kind, "TrainingArguments")
    known = run.known("transformers", "TrainingArguments") | (run.known("trl", name) if trl else frozenset())
    takes = run.known("trl", f"{kind.upper()}Trainer") if trl else run.known("transformers", "Trainer")
    if trl and not takes:
        raise CannotSay(f"trl {run.release('trl')} has no {kind.upper()}Trainer")
    script.load()
    adapter = script.adapter()
    script.data(tokenized=not trl)
    args = Arguments(name, known, output_dir="out")
    if trl:
        run.want("stage", kind, what=f"{kind.upper()}Trainer")
        _say_lengths(run, args, kind)
    call = Arguments("the trainer", takes, model=Code("model"), args=Code("args"), train_dataset=Code("data"))
    if not trl and run.take("padding_free"):
        script.transformers.add("DataCollatorWithFlattening")
        call["data_collator"] = Code("DataCollatorWithFlattening()")
    resume = run.take("resume")
    say_training(run, args)
    if "compute_metrics" in (run.left.get("arguments") or ()):
        run.take("arguments")
        script.lines.append("def compute_metrics(predictions):\n    return {}")
        call.put(Code("compute_metrics"), "compute_metrics")
    if adapter and trl:
        call["peft_config"] = Code("peft")
    elif adapter:
        script.lines.append("model = get_peft_model(model, peft)")
    if kind == "grpo":
        call["reward_funcs"] = Code("lambda completions, **rest: [0.0] * len(completions)")
    if args.get("predict_with_generate"):
        name, kind = "Seq2SeqTrainingArguments", "seq2seq"
        script.transformers |= {name, "Seq2SeqTrainer"}
    elif trl:
        script.imports.append(f"from trl import {name}, {kind.upper()}Trainer")
    else:
        script.transformers |= {"Trainer", "TrainingArguments"}
    if args.get("eval_strategy", args.get("evaluation_strategy", "no")) != "no":
        call["eval_dataset"] = Code("data")
    run.finish(f"a script with {name}")
    before, given = made(args) if made else ([], f"{name}({args})")
    trainer = {"seq2seq": "Seq2SeqTrainer", "": "Trainer"}.get(kind, f"{kind.upper()}Trainer")
    again = "resume_from_checkpoint=True" if resume else ""
    return script.text(*before, f"args = {given}", f"trainer = {trainer}({call})", f"trainer.train({again})")


def _say_lengths(run: Run, args: Arguments, kind: str) -> None:
    """Write the longest sample, and what GRPO says of vLLM."""
    length = run.take("max_length")
    if length is not None and kind == "grpo":
        args.put(length - 512, "max_completion_length")
        args.put(512, "max_prompt_length")
    elif length is not None:
        args.put(length, "max_length", "max_seq_length")
    for fact, name in (
        ("gpu_memory_utilization", "vllm_gpu_memory_utilization"),
        ("sleep_mode", "vllm_enable_sleep_mode"),
    ):
        if (value := run.take(fact)) is not None:
            args.put(value, name)
            args.put(True, "use_vllm")
    if (value := run.take("colocate")) is not None:
        args.put("colocate" if value else "server", "vllm_mode")
        args.put(True, "use_vllm")


def trainer(kind: str) -> Callable[[Run], dict[str, str]]:
    """Return the writer of ``train.py`` with a trainer: "" (Trainer), sft, dpo, grpo."""
    return lambda run: {"train.py": _trainer(run, kind)}


def notebook(run: Run) -> dict[str, str]:
    """Write a notebook with Trainer, a cell an empty line."""
    cells = [
        {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
        for cell in _trainer(run, "").split("\n\n")
    ]
    return {"train.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})}


def launched(launcher: str, parser: str) -> Callable[[Run], dict[str, str]]:
    """Return the writer of ``run.sh``, which starts ``train.py`` with its arguments by ``accelerate launch``,
    ``torchrun`` or ``deepspeed``; the script reads them by argparse or by HfArgumentParser."""

    def write(run: Run) -> dict[str, str]:
        words, before = [launcher], []
        run.want("launcher", launcher.partition(" ")[0], what=launcher)
        if launcher == "accelerate launch":
            words += accelerated(run)
            if run.left.get("dtype") == "fp8":
                words += ["--mixed_precision", run.take("dtype")]
        elif (processes := run.take("world_size")) is not None:
            words += ["--nproc_per_node" if launcher == "torchrun" else "--num_gpus", str(processes)]

        def made(args: Arguments) -> tuple[list[str], str]:
            told = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in args.items()}
            before.extend(f"--{name} {_word(value)}" for name, value in told.items())
            if parser != "argparse":
                lines = [
                    "parser = HfArgumentParser(TrainingArguments)",
                    "(args,) = parser.parse_args_into_dataclasses()",
                ]
                return lines, "args"
            lines = ["parser = argparse.ArgumentParser()"]
            for name, value in told.items():
                kind = "str" if isinstance(value, (bool, str)) else type(value).__name__
                kind = 'lambda word: word.lower() == "true"' if isinstance(value, bool) else kind
                lines.append(f'parser.add_argument("--{name}", type={kind})')
            given = ", ".join(
                f"{name}=json.loads(a.{name})" if isinstance(args[name], dict) else f"{name}=a.{name}" for name in told
            )
            return [*lines, "a = parser.parse_args()"], f"TrainingArguments({given})"

        text = _trainer(run, "", made)
        imports = (
            "import argparse\nimport json\n" if parser == "argparse" else "from transformers import HfArgumentParser\n"
        )
        return {"run.sh": " ".join([*words, "train.py", *before]) + "\n", "train.py": imports + text}

    return write


def _word(value: Any) -> str:
    text = str(value)
    return f"'{text}'" if any(sign in text for sign in ' {}"*') else text


_LOOP = """optimizer = OPTIMIZER
loader = torch.utils.data.DataLoader(data, LOADER)
PREPARE
model.train()
for step, batch in enumerate(loader):
    with CONTEXT:
        loss = model(**batch).loss
BACKWARD"""
_OPTIMIZERS = {
    None: "torch.optim.AdamW(model.parameters())",
    "adamw_8bit": "bnb.optim.AdamW8bit(model.parameters())",
    "adamw_bnb_8bit": "bnb.optim.AdamW8bit(model.parameters())",
    "paged_adamw_32bit": "bnb.optim.PagedAdamW32bit(model.parameters())",
}


def loop(run: Run) -> dict[str, str]:
    """Write a plain loop of torch with from_pretrained and a DataLoader; an answer generated where it infers."""
    script = _Script(run)
    if run.left.get("method") == "infer":
        return _generating(script)
    loader = _prepared(script)
    dtype = run.take("dtype")
    if dtype == "fp8":
        raise CannotSay("torch.autocast computes in no fp8")
    context = f"torch.autocast('cuda', dtype={dtype_of(dtype)})" if dtype in ("bf16", "fp16") else "torch.enable_grad()"
    step = "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()"
    if run.take("torch_compile"):
        script.lines.append("model = torch.compile(model)")
    return _looped(script, loader, context, step, "model.cuda()")


def accelerator(run: Run) -> dict[str, str]:
    """Write a loop with ``Accelerator``."""
    script = _Script(run)
    if run.left.get("method") in ("infer", "serve"):
        raise CannotSay("a loop with Accelerator trains")
    script.imports.append("from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin")
    to = Arguments("Accelerator", ("mixed_precision", "gradient_accumulation_steps", "deepspeed_plugin", "fsdp_plugin"))
    dtype, share = run.take("dtype"), run.take("gradient_accumulation")
    if dtype is not None:
        to.put("no" if dtype == "fp32" else dtype, "mixed_precision")
    if share is not None:
        to.put(share, "gradient_accumulation_steps")
    if "zero_stage" in run.left and (name := deepspeed_file(run)):
        to.put(Code(f"DeepSpeedPlugin(hf_ds_config={name!r})"), "deepspeed_plugin")
    if run.take("fsdp") or "fsdp_version" in run.left:
        told = f"fsdp_version={run.take('fsdp_version') or 1}"
        told += ", cpu_offload=True" if run.take("offload_param") == "cpu" else ""
        to.put(Code(f"FullyShardedDataParallelPlugin({told})"), "fsdp_plugin")
    script.lines.append(f"accelerator = Accelerator({to})")
    loader = _prepared(script)
    if run.take("torch_compile"):
        script.lines.append("model = torch.compile(model)")
    step = "        accelerator.backward(loss)\n        optimizer.step()\n        optimizer.zero_grad()"
    prepare = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
    return _looped(script, loader, "accelerator.accumulate(model)", step, prepare)


def _generating(script: _Script) -> dict[str, str]:
    run = script.run
    run.take("method")
    script.load()
    length = run.take("max_length")
    cut = f", truncation=True, max_length={length}" if length is not None else ""
    script.lines.append(f'inputs = tokenizer(["a"], return_tensors="pt"{cut})')
    new = run.take("max_new_tokens") or 64
    run.finish("a script that generates")
    return {"train.py": script.text("model.eval()", f"model.generate(**inputs, max_new_tokens={new})")}


def _prepared(script: _Script) -> str:
    """Write model, adapter and data of a loop; return what its DataLoader is told."""
    run = script.run
    if run.left.get("kernels") in ("liger", ["liger"]):
        run.take("kernels")
        script.liger = True
    script.load()
    if script.adapter():
        script.lines.append("model = get_peft_model(model, peft)")
    script.data(tokenized=True)
    if run.take("gradient_checkpointing"):
        reentrant = run.take("reentrant")
        told = "" if reentrant is None else f'gradient_checkpointing_kwargs={{"use_reentrant": {reentrant}}}'
        script.lines.append(f"model.gradient_checkpointing_enable({told})")
    size = run.take("batch_size")
    size = run.take("train_batch_size") or size
    told = [f"batch_size={size}"] if size is not None else []
    if (workers := run.take("dataloader_workers")) is not None:
        told.append(f"num_workers={workers}")
    return ", ".join(told)


def _looped(script: _Script, loader: str, context: str, step: str, prepare: str) -> dict[str, str]:
    run = script.run
    optimizer = run.take("optimizer")
    if optimizer not in _OPTIMIZERS:
        raise CannotSay(f"bitsandbytes has no optimizer {optimizer}")
    if optimizer is not None:
        script.imports.append("import bitsandbytes as bnb")
    if run.left.get("arguments") == ["x"]:
        run.take("arguments")
    run.finish("a loop of one's own")
    text = _LOOP.replace("OPTIMIZER", _OPTIMIZERS[optimizer]).replace("LOADER", loader).replace("CONTEXT", context)
    return {"train.py": script.text(text.replace("BACKWARD", step).replace("PREPARE", prepare))}


def unsloth(run: Run) -> dict[str, str]:
    """Write a script with FastLanguageModel and SFTTrainer."""
    to = Arguments(
        "FastLanguageModel.from_pretrained", run.known("unsloth", "from_pretrained"), model_name=Code("MODEL")
    )
    run.want("stage", "sft", what="SFTTrainer")
    method, kind = run.take("method"), run.take("quantization")
    if method not in (None, "full", "lora", "qlora"):
        raise CannotSay(f"Unsloth: recipe.method is never {method}")
    to.put(kind == "bnb-4bit" or method == "qlora", "load_in_4bit")
    if kind == "bnb-8bit":
        to.put(True, "load_in_8bit")
    elif kind not in (None, "bnb-4bit"):
        raise CannotSay(f"FastLanguageModel.from_pretrained has no argument for {kind}")
    if (dtype := run.take("load_dtype")) is not None:
        to.put(None if dtype == "auto" else dtype_of(dtype), "dtype")
    if (length := run.take("max_length")) is not None:
        to.put(length, "max_seq_length")
    for fact, name in (("attn", "attn_implementation"), ("device_map", "device_map")):
        if (value := run.take(fact)) is not None:
            to.put(value, name)
    if run.take("trust_remote_code"):
        to.put(True, "trust_remote_code")
    lines = ["from unsloth import FastLanguageModel", "import torch", "from datasets import load_dataset"]
    lines += ["from trl import SFTConfig, SFTTrainer", f"MODEL = {run.model!r}"]
    checkpointing = run.take("gradient_checkpointing")
    if method == "full":
        to.put(True, "full_finetuning")
        if checkpointing is not None:
            to.put(checkpointing, "use_gradient_checkpointing")
    lines.append(f"model, tokenizer = FastLanguageModel.from_pretrained({to})")
    if method != "full":
        peft = Arguments("get_peft_model", run.known("unsloth", "get_peft_model"))
        names = {"lora_r": "r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"}
        names |= {"lora_targets": "target_modules", "lora_modules_to_save": "modules_to_save"}
        for fact, name in names.items():
            if (value := run.take(fact)) is not None:
                peft.put(value, name)
        if checkpointing is not None:
            peft.put(checkpointing, "use_gradient_checkpointing")
        lines.append(f"model = FastLanguageModel.get_peft_model({', '.join(filter(None, ['model', str(peft)]))})")
    stream = ", streaming=True" if run.take("streaming") else ""
    lines.append(f'data = load_dataset("org/data", split="train"{stream})')
    if run.left.get("kernels") == ["unsloth"]:
        run.take("kernels")
    known = run.known("transformers", "TrainingArguments") | run.known("trl", "SFTConfig")
    args = Arguments("SFTConfig", known, output_dir="out")
    resume = run.take("resume")
    say_training(run, args)
    run.finish("a script of Unsloth")
    lines.append(f"args = SFTConfig({args})")
    lines.append("trainer = SFTTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)")
    lines.append(f"trainer.train({'resume_from_checkpoint=True' if resume else ''})")
    return {"train.py": "\n".join([*lines, ""])}


def say_engine(run: Run, to: Arguments, names: dict[str, str], what: str) -> None:
    """Write what an engine is told. Raises :class:`CannotSay`."""
    run.want("method", "infer", "serve", what=what)
    for fact, name in names.items():
        if (value := run.take(fact)) is not None:
            to.put({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(value, value), name)
    if (kind := run.take("quantization")) is not None:
        to.put("bitsandbytes" if kind.startswith("bnb") else kind, "quantization")
    if "arguments" in run.left and set(run.left["arguments"]) <= {"x"}:
        run.take("arguments")
    run.finish(what)


VLLM = {
    "dtype": "dtype",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "max_model_len": "max_model_len",
    "max_length": "max_model_len",
    "tensor_parallel": "tensor_parallel_size",
    "max_sequences": "max_num_seqs",
    "max_batched_tokens": "max_num_batched_tokens",
    "kv_cache_dtype": "kv_cache_dtype",
    "enforce_eager": "enforce_eager",
    "sleep_mode": "enable_sleep_mode",
    "trust_remote_code": "trust_remote_code",
}
SGLANG = {
    "dtype": "dtype",
    "max_model_len": "context_length",
    "max_length": "context_length",
    "tensor_parallel": "tp_size",
    "max_sequences": "max_running_requests",
    "kv_cache_dtype": "kv_cache_dtype",
    "trust_remote_code": "trust_remote_code",
}


def vllm(run: Run) -> dict[str, str]:
    """Write a script that answers with ``vllm.LLM``."""
    to = Arguments("LLM", run.known("vllm", "LLM", "EngineArgs"), model=run.model)
    say_engine(run, to, VLLM, "vllm.LLM")
    return {"serve.py": f'from vllm import LLM, SamplingParams\nllm = LLM({to})\nprint(llm.generate(["a"]))\n'}


def sglang(run: Run) -> dict[str, str]:
    """Write a script that answers with ``sglang.Engine``."""
    to = Arguments("sglang.Engine", run.known("sglang", "ServerArgs"), model_path=run.model)
    say_engine(run, to, SGLANG, "sglang.Engine")
    return {"serve.py": f'import sglang as sgl\nllm = sgl.Engine({to})\nprint(llm.generate(["a"]))\n'}
