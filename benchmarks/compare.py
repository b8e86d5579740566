#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tokens per second of Accordion beside its peers: same model, weights, bytes, steps and threads.

    python3 benchmarks/compare.py --work DIR --quick
    python3 benchmarks/compare.py --work DIR --trainers 'accordion*,torch-fsdp2*' --shapes wide --dtypes bf16
    python3 benchmarks/compare.py --work DIR --scaling ranks,vocabulary --trainers accordion,torch-fsdp2

Trainers run in turn, one thread a rank. Losses of each run must follow one PyTorch process in fp32 before its speed
counts. A trainer that fails is a line of the table, and the others go on. Ctrl-C prints the tables of what there is;
every run is also a line of DIR/results.jsonl. README.md says how to make the peers'
environments, DIR/venv-torch and DIR/venv-jax.
"""
import argparse
import fnmatch
import pathlib
import sys

from harness.cells import SCALING_AXES, SHAPES, Cell, scaling_cells, shape_cells
from harness.runner import Results, Runner
from harness.table import cell_table, scaling_table
from harness.trainers import TRAINERS, Setting, Trainer

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICK_REPEATS, QUICK_STEPS = 1, 3


def words(text: str) -> list[str]:
    return text.split(",")


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", type=pathlib.Path, required=True, help="folder of weights, logs, environments")
    p.add_argument("--accordion", type=pathlib.Path, default=ROOT / "build" / "bin" / "accordion")
    p.add_argument("--torch-python", type=pathlib.Path, help="interpreter with torch and deepspeed (DIR/venv-torch)")
    p.add_argument("--jax-python", type=pathlib.Path, help="interpreter with jax (DIR/venv-jax)")
    p.add_argument("--data", type=pathlib.Path, default=ROOT / "tests" / "data" / "parity" / "data.txt", help="text")
    p.add_argument("--trainers", type=words, default=["*"], help=f"patterns, of {', '.join(TRAINERS)}")
    p.add_argument("--shapes", type=words, default=["small", "wide"], help=f"of {', '.join(SHAPES)}")
    p.add_argument("--dtypes", type=words, default=["fp32", "bf16"], help="of fp32, bf16")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--scaling", type=words, default=[], help=f"in place of shapes: axes, of {', '.join(SCALING_AXES)}")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=10, help="that are measured, after 3 to warm up")
    p.add_argument("--timeout", type=float, default=900, help="seconds a run may take")
    p.add_argument("--quick", action="store_true", help=f"{QUICK_REPEATS} repeat of {QUICK_STEPS} steps")
    a = p.parse_args()
    for name, known in (("shapes", SHAPES), ("dtypes", ("fp32", "bf16")), ("scaling", SCALING_AXES)):
        for word in getattr(a, name):
            if word not in known:
                p.error(f"--{name}: '{word}' is none of {', '.join(known)}")
    if a.quick:
        a.repeats, a.steps = QUICK_REPEATS, QUICK_STEPS
    return a


def chosen_trainers(patterns: list[str]) -> list[Trainer]:
    for pattern in patterns:
        if not fnmatch.filter(TRAINERS, pattern):
            sys.exit(f"--trainers: '{pattern}' matches none of {', '.join(TRAINERS)}")
    return [t for name, t in TRAINERS.items() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def setting(a: argparse.Namespace) -> Setting:
    work = a.work.resolve()
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"--work: the folder cannot be made: {error}")
    chosen = Setting(
        work=work, accordion=a.accordion.resolve(), data=a.data.resolve(), steps=a.steps, timeout_s=a.timeout,
        torch_python=(a.torch_python or work / "venv-torch" / "bin" / "python").absolute(),
        jax_python=(a.jax_python or work / "venv-jax" / "bin" / "python").absolute())
    for name, path in (("--torch-python", chosen.torch_python), ("--data", chosen.data)):
        if not path.exists():
            sys.exit(f"{path} is not there; see benchmarks/README.md, or set {name}")
    return chosen


def failed(results: dict[Cell, Results]) -> bool:
    return any(runs.faults for by_trainer in results.values() for runs in by_trainer.values())


def main() -> int:
    a = arguments()
    runner = Runner(setting(a), chosen_trainers(a.trainers))
    tables: list[tuple[str | None, list[Cell]]] = [(axis, scaling_cells(axis, a.dtypes)) for axis in a.scaling]
    any_failed = False
    for axis, cells in tables or [(None, shape_cells(a.shapes, a.dtypes, a.ranks))]:
        results = runner.run(cells, a.repeats)
        any_failed |= failed(results)
        for cell, by_trainer in results.items():
            print(cell_table(cell, by_trainer), flush=True)
        if axis is not None:
            print(scaling_table(axis, results), flush=True)
        if runner.interrupted:
            return 130
    return 1 if any_failed else 0


if __name__ == "__main__":
    sys.exit(main())
