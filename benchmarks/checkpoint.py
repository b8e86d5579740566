#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Saves and loads of a model with the state of AdamW on 2 ranks, beside dd and torch.distributed.checkpoint.

    checkpoint.py --work DIR [--config CONFIG.json] [--repeats 5]

All ways take turns on the disk of DIR, in another order each repeat. Needs root: the page cache is dropped before each
cold read. Ranks live through the whole run, so that none pays for memory that it touches first.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = 2
MIB = 1 << 20


class Ranks:
    """Processes that answer a line of JSON to each command."""

    def __init__(self, port: int, command: list[str]):
        environment = {**os.environ, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": f"bench-{port}"}
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(RANKS)]
        self.answers()

    def answers(self) -> list[dict]:
        lines = [process.stdout.readline() for process in self.processes]
        if "" in lines:
            sys.exit("a rank ended, see its message above")
        return [json.loads(line) for line in lines]

    def run(self, command: str, path: pathlib.Path | str = "-") -> dict:
        """Of each figure the largest: a save is over when all ranks are done."""
        for process in self.processes:
            process.stdin.write(f"{command} {path}\n")
            process.stdin.flush()
        answers = self.answers()
        return {key: max(answer[key] for answer in answers) for key in answers[0]}

    def end(self) -> None:
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()


def seconds_of(commands: list[list[str]]) -> float:
    """Of commands that run at the same time."""
    start = time.perf_counter()
    processes = [subprocess.Popen(command) for command in commands]
    if any([process.wait() for process in processes]):
        sys.exit("dd failed")
    return time.perf_counter() - start


def dd(source: pathlib.Path | str, target: pathlib.Path | str, *more: str) -> list[str]:
    return ["dd", f"if={source}", f"of={target}", "bs=1M", "status=none", *more]


def make_cold(files: list[pathlib.Path]) -> None:
    """Drops the page cache, with these files in it, so that every cold read finds the memory for its pages alike."""
    seconds_of([dd(file, "/dev/null") for file in files])
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Bench:
    """Every way to save and to load, each a function that returns its seconds."""

    def __init__(self, work: pathlib.Path, ours: Ranks, peer: Ranks | None):
        self.work, self.ours, self.peer = work, ours, peer
        self.figures: dict[str, list[float]] = defaultdict(list)
        self.save(ours, "accordion")
        self.first_start = self.save(ours, "accordion-async", "async")
        if peer:
            self.save(peer, "dcp")
        self.figures.clear()  # what comes first also touches memory for the first time
        self.files = sorted((work / "accordion").glob("*.safetensors"))
        self.bytes = sum(file.stat().st_size for file in self.files)
        self.source = pathlib.Path(f"/dev/shm/{work.name}-source")  # dd writes from memory, as ranks do
        with open(self.source, "wb") as source:
            for file in self.files:
                with open(file, "rb") as part:
                    shutil.copyfileobj(part, source, MIB)

    def command(self, ranks: Ranks, command: str, folder: str) -> float:
        result = ranks.run(command, self.work / folder)
        for key, value in result.items():
            self.figures[f"{folder} {command} {key}"].append(value)
        return result["seconds"]

    def save(self, ranks: Ranks, folder: str, command: str = "save") -> float:
        shutil.rmtree(self.work / folder, ignore_errors=True)
        os.sync()
        return self.command(ranks, command, folder)

    def load_cold(self, ranks: Ranks, folder: str) -> float:
        make_cold(list((self.work / folder).iterdir()))
        return self.command(ranks, "load", folder)

    def load_warm(self, ranks: Ranks, folder: str) -> float:
        ranks.run("load", self.work / folder)
        return ranks.run("load", self.work / folder)["seconds"]

    def write(self, streams: int, *flags: str) -> float:
        part = -(-self.bytes // MIB // streams)  # rounded up
        targets = [self.work / f"dd-{stream}" for stream in range(streams)]
        for target in targets:
            target.unlink(missing_ok=True)
        os.sync()
        return seconds_of([dd(self.source, target, "conv=fsync", f"count={part}", f"skip={stream * part}", *flags)
                           for stream, target in enumerate(targets)])

    def read_one(self, *flags: str) -> float:
        make_cold(self.files)
        return sum(seconds_of([dd(file, "/dev/null", *flags)]) for file in self.files)

    def read_all(self, *flags: str) -> float:
        make_cold(self.files)
        return seconds_of([dd(file, "/dev/null", *flags) for file in self.files])

    def groups(self) -> dict[str, dict[str, Callable[[], float]]]:
        """What is compared, by table. A way of dd is a limit."""
        groups: dict[str, dict[str, Callable[[], float]]] = {
            "save, on the disk": {
                "dd, 1 stream": lambda: self.write(1),
                "dd, 2 streams": lambda: self.write(2),
                "dd direct, 1 stream": lambda: self.write(1, "oflag=direct"),
                "dd direct, 2 streams": lambda: self.write(2, "oflag=direct"),
                "accordion": lambda: self.save(self.ours, "accordion")},
            "load, cold": {
                "dd, 1 stream": self.read_one,
                "dd, 2 streams": self.read_all,
                "dd direct, 1 stream": lambda: self.read_one("iflag=direct"),
                "dd direct, 2 streams": lambda: self.read_all("iflag=direct"),
                "accordion": lambda: self.load_cold(self.ours, "accordion")},
            "load, warm": {
                "accordion": lambda: self.load_warm(self.ours, "accordion")},
            "what a step waits": {
                "memcpy": lambda: self.command(self.ours, "copy", "accordion"),
                "accordion, CheckpointSaver": lambda: self.save(self.ours, "accordion-async", "async")},
            "checksums alone": {
                "accordion": lambda: self.command(self.ours, "checksum", "accordion")}}
        if self.peer:
            groups["save, on the disk"]["DCP"] = lambda: self.save(self.peer, "dcp")
            groups["load, cold"]["DCP"] = lambda: self.load_cold(self.peer, "dcp")
            groups["load, warm"]["DCP"] = lambda: self.load_warm(self.peer, "dcp")
        return groups


def measure(bench: Bench, repeats: int) -> dict[str, dict[str, list[float]]]:
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    shuffle = random.Random(1)
    for repeat in range(repeats):
        for group, ways in bench.groups().items():
            names = list(ways)
            shuffle.shuffle(names)
            for name in names:
                times[group][name].append(ways[name]())
        print(f"repeat {repeat + 1} of {repeats}", file=sys.stderr)
    return times


def print_tables(bench: Bench, times: dict[str, dict[str, list[float]]]) -> None:
    print(f"{bench.bytes / 1e6:.0f} MB; processor time is that of the ranks' processes, the larger one")
    for group, names in bench.groups().items():
        ways = {name: times[group][name] for name in names}
        ours = next(statistics.median(values) for name, values in ways.items() if name.startswith("accordion"))
        print(f"\n{group:28} {'median s':>9} {'least':>7} {'most':>7} {'MB/s':>6} {'accordion is':>13}")
        for name, values in ways.items():
            median = statistics.median(values)
            print(f"{name:28} {median:9.3f} {min(values):7.3f} {max(values):7.3f} {bench.bytes / median / 1e6:6.0f}"
                  f" {median / ours:11.2f} x")
    print(f"\nfirst start of a CheckpointSaver, which also touches its memory: {bench.first_start:.3f} s")
    for name, values in sorted(bench.figures.items()):
        if not name.endswith(" seconds"):
            print(f"{name:34} median {statistics.median(values):8.3f}, {min(values):.3f} to {max(values):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--config", default=str(ROOT / "benchmarks" / "peers" / "configs" / "wide.json"))
    parser.add_argument("--program", default=str(ROOT / "build" / "bin" / "checkpoint_benchmark"))
    parser.add_argument("--torch-python", help="interpreter with torch; without, PyTorch is left out")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    ours = Ranks(29611, [options.program, options.config])
    peer = Ranks(29612, [options.torch_python, str(ROOT / "benchmarks" / "peers" / "torch_checkpoint.py"),
                         options.config]) if options.torch_python else None
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        bench = Bench(pathlib.Path(work), ours, peer)
        try:
            print_tables(bench, measure(bench, options.repeats))
        finally:
            bench.source.unlink()
            for ranks in filter(None, (ours, peer)):
                ranks.end()


if __name__ == "__main__":
    main()
