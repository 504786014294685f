"""The words of the interface in English and Chinese; the labels error, warning, found, why, fix, proof stay English."""

from __future__ import annotations

import re

__all__ = ["LANGUAGES", "PHRASES", "phrase"]

LANGUAGES = ("en", "zh")

_HAN_GAP = "(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"  # compiled when it is needed: that takes a millisecond

#: Name -> (English, Chinese). A name that ends in ``_1`` is the singular of the one without it.
#: English is ASCII; Chinese uses only what GBK has.
PHRASES: dict[str, tuple[str, str]] = {
    # the header
    "target_environment": ("Environment", "环境"),
    "target_path": ("Folder", "目录"),
    "target_root": ("Root folder", "根目录"),
    "target_facts": ("Facts file", "事实文件"),
    "target_lock": ("Lock file", "锁文件"),
    "target_report": ("Report file", "报告文件"),
    "model": ("Model", "模型"),
    "recipe": ("Recipe", "训练配置"),
    "chosen": ("chosen: {reason}", "选择依据：{reason}"),
    "family": ("family {name}", "系列 {name}"),
    "type": ("type {name}", "类型 {name}"),
    "cpu_build": ("CPU build", "CPU 版"),
    "no_gpu": ("no GPU", "无 GPU"),
    "no_nvidia_gpu": ("no NVIDIA GPU", "无 NVIDIA GPU"),
    "no_driver": ("no NVIDIA driver", "无 NVIDIA 驱动"),
    "driver": ("driver {version}", "驱动 {version}"),
    "gpu_and_driver": ("GPU and driver", "GPU 和驱动"),
    "nvidia_driver": ("driver", "驱动"),
    "gpus_incomplete": ("perhaps more GPUs ({reason})", "可能还有其他 GPU（{reason}）"),
    "others": ("{n} more", "另有 {n} 项"),
    # facts in a sentence
    "not_installed": ("{name} not installed", "{name} 未安装"),
    "not_set": ("{name} not set", "{name} 未设置"),
    "none": ("no {name}", "无 {name}"),
    "not_known": ("{name} not known", "{name} 未知"),
    "not_known_because": ("{name} not known ({reason})", "{name} 未知（{reason}）"),
    "separator": (", ", "，"),
    "bracket": ("{text} ({more})", "{text}（{more}）"),
    # revisions
    "revision_old": ("Old", "旧版本"),
    "revision_new": ("New", "新版本"),
    "revision_moved": ("{asked} has moved: it is now {now}", "{asked} 已改名为 {now}"),
    "revision_changes": ("Changes", "变更"),
    "revision_parameters": ("Parameters", "参数量"),
    "revision_since": ("Since", "引入于"),
    "revision_unread": ("Not read", "未读取"),
    "revision_equal": ("Equal", "相同"),
    "revision_cost": ("{requests} requests, {size} read, no weights", "{requests} 次请求，读取 {size}，未下载权重"),
    # experiments
    "probe_title": ("Experiments", "数值实验"),
    "probe_context": ("context {t} s and {mib} MiB", "上下文 {t} 秒、{mib} MiB"),
    "probe_cases": ("{n} cases", "{n} 个用例"),
    "probe_cases_1": ("{n} case", "{n} 个用例"),
    "probe_seconds": ("{t} s", "{t} 秒"),
    "probe_peak": ("at most {mib} MiB each", "每个进程最多 {mib} MiB"),
    "probe_noted": ("noted", "已记录"),
    "probe_example": ("such as {case}", "例如 {case}"),
    "probe_not_in_use": (
        "training would use another device: what ran here does not fail the run",
        "训练会使用其他设备：此处的结果不会使检查失败",
    ),
    "probe_in_use_unknown": (
        "whether training would use this device is not known: {reason}",
        "训练是否会使用此设备未知：{reason}",
    ),
    "probe_reproducer": (
        "a script that shows the worst failure alone: --reproducer FILE",
        "可单独复现最严重错误的脚本：--reproducer FILE",
    ),
    # findings
    "item": ("for {item}", "对象：{item}"),
    "assumed": ("assumed {fact}: {reason}", "假定 {fact}：{reason}"),
    "preview": ("a preview rule: it never fails the run", "预览规则：不会使检查失败"),
    "no_fix": ("none offered here: {reason}", "此处不提供：{reason}"),
    "withheld": ("not offered: {fix}: {reason}", "未提供：{fix}：{reason}"),
    # the last lines
    "no_findings": ("No findings", "没有发现问题"),
    "error_1": ("{n} error", "{n} 个错误"),
    "error": ("{n} errors", "{n} 个错误"),
    "warning_1": ("{n} warning", "{n} 个警告"),
    "warning": ("{n} warnings", "{n} 个警告"),
    "note_1": ("{n} note", "{n} 条提示"),
    "note": ("{n} notes", "{n} 条提示"),
    "ignored": ("{n} ignored", "已忽略 {n} 个"),
    "found": ("{findings}.", "{findings}。"),
    "counted": ("{rules} checked{time}; {missed} could not be checked.", "已检查 {rules}{time}；{missed} 条无法检查。"),
    "rules_1": ("{n} rule", "{n} 条规则"),
    "rules": ("{n} rules", "{n} 条规则"),
    "seconds": (" in {t} s", "（{t} 秒）"),
    "matrix": ("Matrix {version} ({source}).", "规则库 {version}（{source}）。"),
    "more_rules_1": ("{n} more rule: {help}", "可多检查 {n} 条规则：{help}"),
    "more_rules": ("{n} more rules: {help}", "可多检查 {n} 条规则：{help}"),
    "then_more": ("then {n} more: {help}", "再多检查 {n} 条：{help}"),
    "and_help": ("; and ", "；并且"),
    "other_reasons_1": ("{n} rule for other reasons: -v lists it", "{n} 条规则另有原因：用 -v 查看"),
    "other_reasons": ("{n} rules for other reasons: -v lists them", "{n} 条规则另有原因：用 -v 查看"),
    "incomplete": ("Incomplete: the check could not be finished.", "检查未完成。"),
    "incomplete_no_rule": ("Incomplete: no rule could be decided.", "检查未完成：没有一条规则能得出结论。"),
    "not_at_gate": (
        "Exit code 0: no error is at the gate (--fail-on, --fail-confidence).",
        "退出码 0：没有错误达到判定标准（--fail-on, --fail-confidence）。",
    ),
    "details": ("Details: {command}", "详情：{command}"),
    "accept": ("Accept: {command}", "接受：{command}"),
    "wrong": ("Wrong? {command}", "误报？{command}"),
    # -v
    "facts_title": ("Facts", "事实"),
    "not_checked_title": ("Not checked", "无法检查的规则"),
    "ignored_title": ("Ignored", "已忽略"),
    "superseded_title": ("Same cause as another finding", "与其他发现同因"),
    "other_packages_1": ("1 more package: envdoctor facts", "另有 1 个软件包：envdoctor facts"),
    "other_packages": ("{n} more packages: envdoctor facts", "另有 {n} 个软件包：envdoctor facts"),
    "unknown_because": ("unknown ({reason})", "未知（{reason}）"),
    "not_given": ("not given", "未给出"),
    "absent": ("absent", "无"),
    "listed": ("{label}: ", "{label}："),
    "complete": ("any other {prefix}.* is absent", "其他 {prefix}.* 均无"),
    "items": ("{n} items", "{n} 项"),
    "items_1": ("{n} item", "{n} 项"),
    "list_incomplete": ("list may be incomplete: {reason}", "列表可能不完整：{reason}"),
    "list_short": ("envdoctor facts --format json", "envdoctor facts --format json"),
}


def phrase(lang: str, name: str, n: int | None = None, /, **values: object) -> str:
    """The phrase in ``en`` or ``zh``; ``n`` picks the singular where there is one.

    The values are put in as they are: they have to be clean already.
    """
    if n == 1 and name + "_1" in PHRASES:
        name += "_1"
    text = PHRASES[name][lang == "zh"]
    if n is not None:
        values["n"] = n
    if values:
        text = text.format(**values)
    # blanks set off Latin words in Chinese, and have no place between two Chinese ones
    return re.sub(_HAN_GAP, "", text) if lang == "zh" else text
