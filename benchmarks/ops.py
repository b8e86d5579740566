#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fused operators beside LibTorch's own, run eagerly and compiled: forward and backward, one thread, in turn.

    build/peers/venv-torch/bin/python benchmarks/ops.py --build build
    build/peers/venv-torch/bin/python benchmarks/ops.py --build build --shapes wide --dtypes bf16 --operators 'gelu*'

Needs PyTorch, and for torch.compile a C++ compiler and Python's headers. Ours run in `operator_times`, which also
measures what the machine would need: to copy as many bytes as must move, in buffers as large, or to multiply as much at
the rate of a product of 1024 x 1024 matrices. Large blocks stay on the heap on both sides, as under `accordion run`:
else their page faults are most of what is measured. All times are processor time of one thread, median of the repeats and, in
brackets, the least.
"""
import argparse
import fnmatch
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from harness.cells import SHAPES

VOCAB = 32_768  # of losses and embeddings; the models' own, 256, would be all overhead
SAMPLE_S = 0.02
HEAP_TUNABLES = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1"
Tensors = tuple[torch.Tensor, ...]
Operator = tuple[Tensors, Callable[..., Tensors]]  # leaves, and what is made of them


class Sizes:
    def __init__(self, shape: str, dtype: str, **changes: int):
        cell = SHAPES[shape]()
        model = cell.model
        self.of = dict(batch=cell.batch, seq=cell.seq, hidden=model["hidden_size"], inner=model["intermediate_size"],
                       heads=model["num_attention_heads"], vocab=VOCAB, window=0) | changes
        self.dtype_name = dtype
        self.dtype = torch.float32 if dtype == "fp32" else torch.bfloat16

    def __getitem__(self, key: str) -> int:
        return self.of[key]

    def leaf(self, *shape: int) -> torch.Tensor:
        return (torch.randn(shape) * 0.5).to(self.dtype).requires_grad_()

    def hidden(self) -> torch.Tensor:
        return self.leaf(self["batch"], self["seq"], self["hidden"])

    def heads(self) -> torch.Tensor:
        return self.leaf(self["batch"], self["seq"], self["heads"], self["hidden"] // self["heads"])

    def tokens(self) -> torch.Tensor:
        return torch.randint(self["vocab"], (self["batch"] * self["seq"],))


def rms_norm(s: Sizes) -> Operator:
    def add_norm(x, branch, weight):
        total = x + branch
        return total, F.rms_norm(total, weight.shape, weight, 1e-5)
    return (s.hidden(), s.hidden(), s.leaf(s["hidden"])), add_norm


def layer_norm(s: Sizes) -> Operator:
    def add_norm(x, branch, weight, bias):
        total = x + branch
        return total, F.layer_norm(total, weight.shape, weight, bias, 1e-5)
    return (s.hidden(), s.hidden(), s.leaf(s["hidden"]), s.leaf(s["hidden"])), add_norm


def rope(s: Sizes) -> Operator:
    half = s["hidden"] // s["heads"] // 2
    angles = torch.outer(torch.arange(s["seq"]), 1e4 ** (-torch.arange(half) / half)).unsqueeze(1)
    cos, sin = angles.cos().to(s.dtype), angles.sin().to(s.dtype)

    def turned(x):
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return (s.heads(), s.heads()), lambda q, k: (turned(q), turned(k))


def swiglu(s: Sizes) -> Operator:
    inner = (s["batch"], s["seq"], s["inner"])
    return (s.leaf(*inner), s.leaf(*inner)), lambda gate, up: (F.silu(gate) * up,)


def gelu_bias(s: Sizes) -> Operator:
    return (s.leaf(s["batch"], s["seq"], s["inner"]), s.leaf(s["inner"])), lambda x, bias: (F.gelu(x + bias),)


def gelu_tanh(s: Sizes) -> Operator:
    return (s.leaf(s["batch"], s["seq"], s["inner"]),), lambda x: (F.gelu(x, approximate="tanh"),)


def cross_entropy(s: Sizes) -> Operator:
    targets = s.tokens()
    return (s.leaf(len(targets), s["vocab"]),), lambda x: (F.cross_entropy(x.float(), targets),)


def linear_cross_entropy(s: Sizes) -> Operator:
    targets = s.tokens()
    return ((s.leaf(len(targets), s["hidden"]), s.leaf(s["vocab"], s["hidden"])),
            lambda x, weight: (F.cross_entropy(F.linear(x, weight).float(), targets),))


def embedding(s: Sizes) -> Operator:
    tokens = s.tokens().view(s["batch"], s["seq"])
    return (s.leaf(s["vocab"], s["hidden"]),), lambda weight: (F.embedding(tokens, weight),)


def attention(s: Sizes) -> Operator:
    mask = None
    if s["window"]:
        distance = torch.arange(s["seq"]).unsqueeze(1) - torch.arange(s["seq"])
        mask = (distance >= 0) & (distance < s["window"])

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return (F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None).transpose(1, 2),)
    return (s.heads(), s.heads(), s.heads()), attend


def linears(s: Sizes, count: int, out: int) -> Operator:
    weights = [s.leaf(out, s["hidden"]) for _ in range(count)]
    return (s.hidden(), *weights), lambda x, *weights: tuple(F.linear(x, weight) for weight in weights)


def qkv(s: Sizes) -> Operator:
    return linears(s, 3, s["hidden"])


def gate_up(s: Sizes) -> Operator:
    return linears(s, 2, s["inner"])


# Name in the table, the operator, sizes that differ from the model's.
ROWS: list[tuple[str, Callable[[Sizes], Operator], dict[str, int]]] = [
    ("RMSNorm + add", rms_norm, {}),
    ("LayerNorm + add", layer_norm, {}),
    ("RoPE", rope, {}),
    ("SwiGLU", swiglu, {}),
    ("GELU + bias", gelu_bias, {}),
    ("GELU, tanh", gelu_tanh, {}),
    ("cross-entropy", cross_entropy, {}),
    ("linear cross-entropy", linear_cross_entropy, {}),
    ("embedding", embedding, {}),
    ("attention", attention, {}),
    ("attention, 1,024 tokens", attention, dict(batch=1, seq=1024)),
    ("attention, 2,048, window 256", attention, dict(batch=1, seq=2048, window=256)),
    ("QKV", qkv, {}),
    ("gate and up", gate_up, {}),
]


class Ours:
    """The program that runs ours: a line asks, a line answers."""

    def __init__(self, build: pathlib.Path):
        self.process = subprocess.Popen([build / "bin" / "operator_times"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def sample(self, operator: str, s: Sizes) -> tuple[float, float]:
        sizes = " ".join(f"{key}={value}" for key, value in s.of.items())
        self.process.stdin.write(f"{operator} {s.dtype_name} {sizes}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            raise RuntimeError(f"operator_times ended at {operator} {sizes}")
        return float(answer[0]), float(answer[1])


def both_ways(leaves: Tensors, forward: Callable[..., Tensors]) -> Callable[[], None]:
    # A loss is not scaled, as it is not in training.
    directions = [torch.randn_like(result.detach()) if result.dim() else torch.ones_like(result.detach())
                  for result in forward(*leaves)]
    return lambda: torch.autograd.grad(forward(*leaves), leaves, directions)


def sample_ms(call: Callable[[], None]) -> float:
    def timed(calls: int) -> float:
        start = time.thread_time()
        for _ in range(calls):
            call()
        return time.thread_time() - start
    call()
    calls = max(1, int(SAMPLE_S / max(1e-7, timed(1))))
    return timed(calls) / calls * 1e3


def row(name: str, operator: Callable[[Sizes], Operator], sizes: Sizes, ours: Ours, repeats: int) -> str:
    torch._dynamo.reset()
    leaves, forward = operator(sizes)
    eager = both_ways(leaves, forward)
    compiled = both_ways(leaves, torch.compile(forward, dynamic=False))
    times = {"ours": [], "eager": [], "compiled": [], "limit": []}
    for repeat in range(repeats + 1):
        fused, limit = ours.sample(operator.__name__, sizes)
        taken = {"ours": fused, "limit": limit, "eager": sample_ms(eager), "compiled": sample_ms(compiled)}
        for key in taken if repeat else ():  # the first of each is the warm-up
            times[key].append(taken[key])
    medians = {key: statistics.median(values) for key, values in times.items()}
    cells = [f"{medians[key]:.3f} ({min(times[key]):.3f})" for key in ("ours", "eager", "compiled")]
    ratios = [f"{medians[key] / medians['ours']:.2f}" for key in ("eager", "compiled")]
    cells += [f"{medians['limit']:.3f}", f"{medians['limit'] / medians['ours']:.0%}".replace("%", " %"), *ratios]
    return f"| {name} | {' | '.join(cells)} |"


def keep_large_blocks() -> None:
    """Starts this program again with the allocator settings of `accordion run`, unless others are chosen."""
    if "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = HEAP_TUNABLES
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, required=True, help="folder that holds bin/operator_times")
    p.add_argument("--shapes", default="small,wide", help=f"of {', '.join(SHAPES)}")
    p.add_argument("--dtypes", default="fp32,bf16")
    p.add_argument("--operators", default="*", help="a pattern of names of functions in this file")
    p.add_argument("--repeats", type=int, default=7)
    args = p.parse_args()
    keep_large_blocks()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    ours = Ours(args.build)
    for shape in args.shapes.split(","):
        for dtype in args.dtypes.split(","):
            print(f"\n| `{shape}` {dtype}, ms | ours | eager | compiled | limit | ours at | eager / ours "
                  "| compiled / ours |\n|---|---|---|---|---|---|---|---|", flush=True)
            for name, operator, changes in ROWS:
                if fnmatch.fnmatch(operator.__name__, args.operators):
                    print(row(name, operator, Sizes(shape, dtype, **changes), ours, args.repeats), flush=True)


if __name__ == "__main__":
    main()
