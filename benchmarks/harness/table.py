# SPDX-License-Identifier: BSD-3-Clause
"""Results as Markdown tables."""
import statistics
from collections.abc import Iterable

from .cells import Cell
from .run_result import RunResult
from .runner import Results, Runs

OURS = "accordion"


def _spread(values: Iterable[float], digits: int = 0) -> str:
    values = sorted(values)
    return f"{statistics.median(values):.{digits}f} | {values[0]:.{digits}f}, {values[-1]:.{digits}f}"


def _speed(runs: Runs) -> float | None:
    return statistics.median(run.tokens_per_s for run in runs.good) if runs.good else None


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def _row(name: str, runs: Runs, ours: float | None) -> str:
    if not runs.good and not runs.faults:
        return f"| {name} | not run |" + " |" * 7
    if not runs.good:
        return f"| {name} | failed: {runs.faults[0]} |" + " |" * 7
    step_ms = statistics.median(run.step_ms for run in runs.good)
    peak = max(run.peak_mib for run in runs.good)
    faults = statistics.median(run.page_faults for run in runs.good)
    return (f"| {name} | {_spread(run.tokens_per_s for run in runs.good)} | {_ratio(ours, _speed(runs))} | "
            f"{step_ms:.0f} | {peak:.0f} | {faults:.0f} | {runs.deviation:.1e} | "
            f"{len(runs.good)} of {len(runs.good) + len(runs.faults)} |")


def cell_table(cell: Cell, results: Results) -> str:
    ours = _speed(results[OURS]) if OURS in results else None
    lines = [f"### {cell.shape}, {cell.dtype}, {cell.ranks} ranks, {cell.tokens_per_step} tokens a step", "",
             "| trainer | tokens/s | least, most | accordion is | ms a step | peak MiB | page faults a step | "
             "losses differ by | runs |",
             "|---|---|---|---|---|---|---|---|---|",
             *(_row(name, runs, ours) for name, runs in results.items())]
    return "\n".join([*lines, *_machine_lines(results), *_breakdown_lines(results), ""])


def _our_runs(results: Results) -> list[RunResult]:
    return results[OURS].good if OURS in results else []


def _machine_lines(results: Results) -> list[str]:
    runs = _our_runs(results)
    if not runs:
        return []
    return ["", "| of the same runs, all ranks at once | median | least, most |", "|---|---|---|",
            f"| matmul rate, GFLOP/s | {_spread(r.matmul_gflops or 0 for r in runs)} |",
            f"| memory bandwidth, GB/s read and written | {_spread((r.memory_gb_per_s or 0 for r in runs), 1)} |"]


def _breakdown_lines(results: Results) -> list[str]:
    runs = [run.breakdown_ms for run in _our_runs(results) if run.breakdown_ms]
    if not runs:
        return []
    parts = ("compute", "gather", "reduce", "optimizer", "data", "other", "step")
    medians = [f"{statistics.median(run[part] for run in runs):.1f}" for part in parts]
    return ["", f"| a step of accordion, ms | {' | '.join(parts)} |", "|---" * (len(parts) + 1) + "|",
            f"| median of runs | {' | '.join(medians)} |"]


def scaling_table(axis: str, results: dict[Cell, Results]) -> str:
    """One line a cell: each trainer's tokens/s, and how many times as fast accordion is."""
    names = list(next(iter(results.values())))
    lines = [f"### Scaling of {axis}", "", f"| {axis} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for cell, by_trainer in results.items():
        ours = _speed(by_trainer[OURS]) if OURS in by_trainer else None
        entries = [_scaling_entry(runs, ours) for runs in by_trainer.values()]
        lines.append(f"| {cell.name} | {' | '.join(entries)} |")
    return "\n".join([*lines, ""])


def _scaling_entry(runs: Runs, ours: float | None) -> str:
    speed = _speed(runs)
    if speed is None:
        return "failed" if runs.faults else "not run"
    return f"{speed:.0f} ({_ratio(ours, speed)})" if ours else f"{speed:.0f}"
