# SPDX-License-Identifier: BSD-3-Clause
"""What one run of one trainer tells, and how it is read from what the trainers write."""
import json
import pathlib
import statistics
from dataclasses import dataclass, field


@dataclass
class RunResult:
    """Times and faults leave out the steps for warming up."""
    losses: list[float] = field(default_factory=list)  # of every step
    tokens_per_s: float = 0.0  # of all ranks, at the median step
    step_ms: float = 0.0  # median
    peak_mib: float = 0.0  # of all ranks: PSS where pages are shared, else RSS
    page_faults: float = 0.0  # a step, of one rank
    matmul_gflops: float | None = None  # of all ranks together
    memory_gb_per_s: float | None = None
    breakdown_ms: dict[str, float] | None = None
    error: str | None = None  # why there is nothing of the above


def from_bench(text: str) -> RunResult:
    """What `accordion bench --json` prints."""
    d = json.loads(text)
    return RunResult(
        losses=d["losses"], tokens_per_s=d["tokens_per_s"], step_ms=d["step_ms"]["median"],
        peak_mib=d["peak_memory_mib"]["all_ranks_pss"], page_faults=d["page_faults_per_step"],
        matmul_gflops=d["matmul"]["flops_per_s"] / 1e9, memory_gb_per_s=d["memory_bytes_per_s"] / 1e9,
        breakdown_ms=d["breakdown_ms"])


def side_by_side(runs: list[RunResult]) -> RunResult:
    """Ranks that trained alone at the same time, as one result; they have the same losses."""
    if any(run.losses != runs[0].losses for run in runs):
        return RunResult(error="ranks that trained the same data alone have different losses")
    return RunResult(
        losses=runs[0].losses, tokens_per_s=sum(r.tokens_per_s for r in runs),
        step_ms=statistics.median(r.step_ms for r in runs), peak_mib=sum(r.peak_mib for r in runs),
        page_faults=statistics.mean(r.page_faults for r in runs))


def from_peer_log(path: pathlib.Path, warmup: int) -> RunResult:
    """The JSON lines of a trainer in peers/."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [line for line in lines if "step" in line]
    summary = next((line for line in lines if line.get("summary")), None)
    if summary is None:
        return RunResult(error=f"ended after {len(steps)} steps without a summary")
    return RunResult(
        losses=[step["loss"] for step in steps], tokens_per_s=summary["tokens_per_s"],
        step_ms=summary["step_ms_median"], peak_mib=sum(rank["train_peak"] for rank in summary["rss_mib"]),
        page_faults=statistics.median(step["minor_faults"] for step in steps[warmup:]))
