#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""State memory and step time that were predicted after a calibration, beside those measured.

    python3 benchmarks/plan.py --accordion build/bin/accordion
    python3 benchmarks/plan.py --shapes small --dtypes bf16 --strategies full_shard --cluster host.toml

Without --cluster the machine is calibrated first, with as many ranks, and again after so many rows, as shared machines
change. Each run is `accordion bench`; a row is one of its ranks at its highest, less activations, and the median of its
steps.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

from harness.bench import bench
from harness.cells import SHAPES, of_width
from harness.trainers import MEMORY_OPTIONS

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRATEGIES = ("full_shard", "shard_grad_op", "shard_optimizer", "no_shard", "hybrid")
OPTIONS = {"": {}, "accumulated-2": {"train.grad_accumulation": 2}} | MEMORY_OPTIONS
STATE = ("sharded_parameters", "unsharded_parameters", "gradients", "optimizer", "communication_buffers")
CELLS = {**SHAPES, "width384": lambda: of_width(384), "width768": lambda: of_width(768)}  # widths that no calibration takes
MIB = 1 << 20


def words(text: str) -> list[str]:
    return text.split(",")


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--accordion", type=pathlib.Path, default=ROOT / "build" / "bin" / "accordion")
    p.add_argument("--cluster", type=pathlib.Path, help="what `accordion bench calibrate --to` wrote")
    p.add_argument("--data", type=pathlib.Path, default=ROOT / "tests" / "data" / "parity" / "data.txt", help="text")
    p.add_argument("--shapes", type=words, default=["tiny", "small", "wide"], help=f"of {', '.join(CELLS)}")
    p.add_argument("--dtypes", type=words, default=["fp32", "bf16"], help="of fp32, bf16, fp16")
    p.add_argument("--strategies", type=words, default=list(STRATEGIES), help=f"of {', '.join(STRATEGIES)}")
    p.add_argument("--options", type=words, default=list(OPTIONS), help=f"of {', '.join(OPTIONS)}; '': none")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--rows", type=int, default=8, help="to predict with one calibration; default 8")
    return p.parse_args()


def calibrated(a: argparse.Namespace, work: pathlib.Path) -> pathlib.Path:
    cluster = work / "host.toml"
    subprocess.run([a.accordion, "bench", "calibrate", "--nproc", str(a.ranks), "--scratch", work, "--to", cluster], check=True)
    return cluster


def state(memory: dict[str, int]) -> float:
    return sum(memory[kind] for kind in STATE)


def row(name: list[str], result: dict[str, object], errors: dict[str, list[float]]) -> str:
    held, planned = state(result["memory_bytes"]["held"]), state(result["memory_bytes"]["estimated"])
    measured, predicted = result["step_ms"]["median"], result["predicted_ms"]["step"]
    memory_error, time_error = (planned / held - 1) * 100, (predicted / measured - 1) * 100
    errors["memory"].append(abs(memory_error))
    errors["time"].append(abs(time_error))
    cells = [f"{planned / MIB:.1f}", f"{held / MIB:.1f}", f"{memory_error:+.1f} %",
             f"{predicted:.1f}", f"{measured:.1f}", f"{time_error:+.1f} %"]
    return f"| {' | '.join(name + cells)} |"


def summary(errors: dict[str, list[float]]) -> str:
    def line(what: str, values: list[float], limit: float) -> str:
        within = sum(value <= limit for value in values)
        return (f"{what}: median error {statistics.median(values):.1f} %, largest {max(values):.1f} %, "
                f"{within} of {len(values)} within {limit:.0f} %")

    return "\n".join([line("state memory", errors["memory"], 3), line("step time", errors["time"], 10)])


def main() -> None:
    a = arguments()
    header = ["model", "dtype", "strategy", "option", "state MiB predicted", "measured", "error",
              "ms a step predicted", "measured", "error"]
    errors: dict[str, list[float]] = {"memory": [], "time": []}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        given = a.cluster is not None
        print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
        for shape in a.shapes:
            for dtype in a.dtypes:
                for strategy in a.strategies:
                    for option in a.options:
                        keys = {"fsdp.param_dtype": dtype, "fsdp.strategy": strategy, **OPTIONS[option]}
                        if "offloaded" in option:
                            keys["memory.offload_to"] = work
                        if not given and len(errors["time"]) % a.rows == 0:
                            a.cluster = calibrated(a, work)
                        result = bench(a, work, CELLS[shape](), keys, "--steps", a.steps, "--cluster", a.cluster)
                        print(row([shape, dtype, strategy, option or "none"], result, errors), flush=True)
    print(f"\n{summary(errors)}")


if __name__ == "__main__":
    sys.exit(main())
