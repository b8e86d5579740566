#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A model larger than its memory: resident bytes, speed and disk of `accordion train configs/fit-1b.toml`.

    python3 benchmarks/fit.py --accordion build/bin/accordion
    python3 benchmarks/fit.py --steps 6 memory.chunked_loss_tokens=64

Trains on two ranks, with dd on the same disk before and after. Resident are the PSS of all ranks together, sampled
twice a second: pages that ranks share count once. One more step is traced, which says for how long the disk was busy.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
DD_BYTES = 1 << 30


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--accordion", type=pathlib.Path, default=ROOT / "build" / "bin" / "accordion")
    p.add_argument("--config", type=pathlib.Path, default=ROOT / "configs" / "fit-1b.toml")
    p.add_argument("--data", type=pathlib.Path, default=ROOT / "README.md", help="text; what is learned is no matter")
    p.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path.cwd(), help="folder on the disk to offload to")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, default=4, help="the first is not timed: nothing is on the disk yet")
    p.add_argument("--trace", help="file for a step in the trace event format; {rank} in its name is a rank's number")
    p.add_argument("keys", nargs="*", help="of the configuration")
    return p.parse_args()


def dd(folder: pathlib.Path) -> tuple[float, float]:
    """MB/s of writing and of reading, past the page cache."""
    file = folder / f".dd-{os.getpid()}"
    rates = []
    for flow in ([f"if=/dev/zero", f"of={file}", "oflag=direct"], [f"if={file}", "of=/dev/null", "iflag=direct"]):
        begin = time.monotonic()
        subprocess.run(["dd", *flow, "bs=4M", f"count={DD_BYTES >> 22}"], check=True, stderr=subprocess.DEVNULL)
        rates.append(DD_BYTES / (time.monotonic() - begin) / 1e6)
    file.unlink()
    return rates[0], rates[1]


def children(process: int) -> list[int]:
    found = [process]
    for parent in found:
        try:
            text = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += [int(word) for word in text.split()]
    return found


def field(text: str, name: str) -> int:
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(name + ":")), 0)


class Watch(threading.Thread):
    """The most that a process and its children hold at a time."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self.process, self.peak, self.stopped = process, 0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.5):
            texts = []
            for child in children(self.process):
                try:
                    texts.append(pathlib.Path(f"/proc/{child}/smaps_rollup").read_text())
                except OSError:  # it has ended
                    pass
            self.peak = max(self.peak, sum(field(text, "Pss") for text in texts))

    def stop(self) -> int:
        self.stopped.set()
        self.join()
        return self.peak


def run(command: list[str]) -> int:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    watch = Watch(process.pid)
    watch.start()
    code = process.wait()
    peak = watch.stop()
    if code != 0:
        sys.exit(f"fit.py: '{' '.join(command)}' failed with {code}")
    return peak


def united(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without overlaps."""
    result: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


def length(spans: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in spans)


def disk_of_traces(traces: list[dict]) -> tuple[int, float, int]:
    """Bytes moved, seconds in which any rank moved some, and transfers."""
    begins, moved, flights = {}, 0, []
    for trace in traces:
        zero = trace["otherData"]["begin_ns"] / 1e3  # of a clock that ranks of a host share
        for event in trace["traceEvents"]:
            if event.get("cat") == "offload":
                key = (event["pid"], event["id"])
                if event["ph"] == "b":
                    begins[key] = zero + event["ts"]
                    moved += event["args"]["bytes"]
                else:
                    flights.append((begins[key], zero + event["ts"]))
    return moved, length(united(flights)) / 1e6, len(flights)


def main() -> None:
    a = arguments()
    keys = [f"data.path={a.data}", f"memory.offload_to={a.scratch}", *a.keys]
    before = dd(a.scratch)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        keys.append(f"data.cache_dir={work / 'cache'}")
        peak = run([a.accordion, "train", a.config, "--nproc", str(a.ranks), f"run.dir={work / 'run'}",
                    f"train.steps={a.steps}", *keys])
        lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
        trace = a.trace or str(work / "trace-{rank}.json")
        if "{rank}" not in trace:
            sys.exit("fit.py: --trace needs {rank} in its name, as every rank has a trace")
        traced = run([a.accordion, "bench", a.config, "--nproc", str(a.ranks), "--steps", "1", "--trace", trace, *keys])
        traces = [json.loads(pathlib.Path(trace.replace("{rank}", str(rank))).read_text()) for rank in range(a.ranks)]
    after = dd(a.scratch)

    steps = [line for line in lines if "ms" in line][1:]
    offload = {name: statistics.median(step["offload"][name] for step in steps) for name in steps[0]["offload"]}
    seconds = statistics.median(step["ms"] for step in steps) / 1e3
    moved, busy, transfers = disk_of_traces(traces)
    write, read = (statistics.mean(pair) for pair in zip(before, after))
    dd_rate = 2 / (1 / write + 1 / read)
    print(f"resident, all ranks together    {peak / 1e9:6.2f} GB at most ({traced / 1e9:.2f} GB while traced)")
    print(f"a step                          {seconds:6.1f} s, {60 / seconds:.2f} a minute, {len(steps)} timed")
    print(f"read and written in a step      {offload['read_mib'] / 1024:6.2f} and {offload['written_mib'] / 1024:.2f} GiB")
    print(f"waited for the disk in a step   {offload['waited_ms'] / 1e3:6.1f} s, mean of the ranks")
    print(f"disk, in the step traced        {moved / busy / 1e6:6.0f} MB/s over {busy:.1f} s, {transfers} transfers")
    print(f"dd, before and after            {write:6.0f} MB/s writing, {read:.0f} reading, {dd_rate:.0f} of both in turn")
    print(f"disk / dd                       {moved / busy / 1e6 / dd_rate:6.2f}")
    print(f"loss                            {lines[0]['loss']:.4f} to {steps[-1]['loss']:.4f}")


if __name__ == "__main__":
    main()
