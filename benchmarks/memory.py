#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a rank holds beside what was predicted from shapes: by kind, for models, strategies and options.

    python3 benchmarks/memory.py --accordion build/bin/accordion
    python3 benchmarks/memory.py --shapes wide --dtypes bf16 --strategies full_shard
    python3 benchmarks/memory.py --saved

Each run is `accordion bench` with a few steps; a row is one of its ranks at its highest, in MiB. With --saved a row is
what a layer saves for backward, in bytes of a token: what half of the layers save less.
"""
import argparse
import dataclasses
import pathlib
import sys
import tempfile

from harness.bench import bench
from harness.cells import SHAPES, Cell
from harness.trainers import MEMORY_OPTIONS

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRATEGIES = ("full_shard", "shard_grad_op", "shard_optimizer", "no_shard")
OPTIONS = {"": {}} | MEMORY_OPTIONS
KINDS = ("sharded_parameters", "unsharded_parameters", "gradients", "optimizer", "communication_buffers", "activations")
MIB = 1 << 20


def vocab32k() -> Cell:
    small = SHAPES["small"]()
    return dataclasses.replace(small, shape="vocab32k", model={**small.model, "vocab_size": 32_768})


CELLS = {**SHAPES, "vocab32k": vocab32k}


def words(text: str) -> list[str]:
    return text.split(",")


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--accordion", type=pathlib.Path, default=ROOT / "build" / "bin" / "accordion")
    p.add_argument("--data", type=pathlib.Path, default=ROOT / "tests" / "data" / "parity" / "data.txt", help="text")
    p.add_argument("--shapes", type=words, default=["small", "wide", "vocab32k"], help=f"of {', '.join(CELLS)}")
    p.add_argument("--dtypes", type=words, default=["fp32", "bf16"], help="of fp32, bf16")
    p.add_argument("--strategies", type=words, default=list(STRATEGIES), help=f"of {', '.join(STRATEGIES)}")
    p.add_argument("--options", type=words, default=list(OPTIONS), help=f"of {', '.join(MEMORY_OPTIONS)}; '': none")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--saved", action="store_true", help="what a layer saves, in full_shard")
    return p.parse_args()


def deviation(held: int, estimated: int) -> str:
    return f"{(held / estimated - 1) * 100:+.1f} %" if estimated else ("0" if held == 0 else f"{held / MIB:.1f} MiB")


def row(name: list[str], memory: dict[str, dict[str, int]]) -> str:
    held, estimated = memory["held"], memory["estimated"]
    cells = [f"{held[kind] / MIB:.1f} ({deviation(held[kind], estimated[kind])})" for kind in KINDS]
    return f"| {' | '.join(name + cells)} |"


def with_layers(cell: Cell, layers: int) -> Cell:
    return dataclasses.replace(cell, model={**cell.model, "num_hidden_layers": layers})


def saved_by_a_layer(a: argparse.Namespace, work: pathlib.Path, cell: Cell, keys: dict) -> dict[str, float]:
    layers = cell.model["num_hidden_layers"]
    activations = []
    for count in (layers, layers // 2):
        memory = bench(a, work, with_layers(cell, count), keys, "--steps", 1)["memory_bytes"]
        activations.append({which: memory[which]["activations"] for which in ("held", "estimated")})
    tokens = cell.batch * cell.seq
    return {which: (activations[0][which] - activations[1][which]) / (layers - layers // 2) / tokens
            for which in ("held", "estimated")}


def print_saved(a: argparse.Namespace) -> None:
    print("| model | dtype | option | bytes of a token | formula | |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for shape in a.shapes:
            for dtype in a.dtypes:
                for option in ("", "selective", "checkpointed"):
                    keys = {"fsdp.param_dtype": dtype, **OPTIONS[option]}
                    of = saved_by_a_layer(a, pathlib.Path(work), CELLS[shape](), keys)
                    print(f"| {shape} | {dtype} | {option or 'none'} | {of['held']:,.0f} | {of['estimated']:,.0f} "
                          f"| {(of['held'] / of['estimated'] - 1) * 100:+.1f} % |", flush=True)


def main() -> None:
    a = arguments()
    if a.saved:
        print_saved(a)
        return
    header = ["model", "dtype", "strategy", "option", *(kind.replace("_", " ") for kind in KINDS)]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    with tempfile.TemporaryDirectory() as work:
        for shape in a.shapes:
            for dtype in a.dtypes:
                for strategy in a.strategies:
                    for option in a.options:
                        keys = {"fsdp.param_dtype": dtype, "fsdp.strategy": strategy, **OPTIONS[option]}
                        run = bench(a, pathlib.Path(work), CELLS[shape](), keys, "--steps", 1)
                        memory = run["memory_bytes"]
                        print(row([shape, dtype, strategy, option or "none"], memory), flush=True)


if __name__ == "__main__":
    sys.exit(main())
