# SPDX-License-Identifier: BSD-3-Clause
"""No run is lost: a small run is ended in every way that its checkpoints must survive, gone on with by
`accordion train --resume auto`, and must then have measured, bit for bit, what an unbroken run measures.

    crash_trials.py --accordion BUILD/bin/accordion --verify BUILD/bin/verify_checkpoint
                    --crash-point BUILD/tests/support/libaccordion_crash_point.so
                    [--quick] [--only REGEX] [--seed 1] [--random 100] [--jobs 2]

Without --quick, over 1100 trials, of two or three seconds each on idle cores:
    killed at call    each call with which rank 0 or 1 changes the disk, saving in the foreground or background: killed
                      before it, or halfway through a write; of many writes to one file: the first, middle and last
    killed at random  all processes, the launcher or one rank, several times in a run that saves at every step
    error at call     each such call fails, alone or with all later ones of its kind: full disk, I/O error, no access
    small disk        a file system that holds one checkpoint or none, or turns read-only (as root; else it fails)
    stopped rank      SIGSTOP: the others wait for as long as fsdp.timeout says, and name it
    signals           SIGTERM and SIGINT to the launcher or a rank, and a second SIGINT

--quick, for ctest, is a choice of the same: the calls around each rename, some kills, errors and signals.
"""
import argparse
import contextlib
import errno
import functools
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from small_disk import remount, small_disk
from trial_run import NUM_RANKS, Crash, Programs, Run, Shape, Start, require

SHORT = Shape()
LONG_STEPS = 40
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
TEXT = pathlib.Path(__file__).resolve().parents[1] / "data" / "parity" / "data.txt"

Call = tuple[str, str]  # kind and path
Curve = list[tuple]


@dataclass(frozen=True)
class Trial:
    kind: str
    name: str
    shape: Shape
    play: Callable[[Run, Curve], None]  # raises where the run is lost


def wait_for(start: Start, what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        require(start.launcher.poll() is None, f"ended before {what}: {start.output}")
        require(time.monotonic() < deadline, f"60 s, and not yet {what}: {start.output}")
        time.sleep(0.002)


def steps_measured(run: Run) -> int:
    with contextlib.suppress(OSError, ValueError):
        return sum(len(point) > 2 for point in run.curve())
    return 0


def finish(run: Run, expected: Curve) -> None:
    run.go_on()
    run.check_end(expected)


# ---- Killed or failing at a call


@functools.cache
def calls_of(programs: Programs, shape: Shape, rank: int, below: str) -> list[Call]:
    """The calls of a rank that change the disk below a folder of its run, in order."""
    run = Run(programs, f"count-{rank}-{shape.is_async}-{below}", shape)
    log = run.folder.with_suffix(".log")
    start = run.start(Crash(rank, below=below), log=log)
    require(start.end() == 0, start.output)
    calls = [tuple(line.replace(f"{run.folder}/", "").split(" ", 1)) for line in log.read_text().splitlines()]
    shutil.rmtree(run.folder)
    return calls


def each_once(calls: list[Call]) -> list[int]:
    """Numbers of calls, from 1: all but those between the first, middle and last of a row of writes to one file."""
    chosen = []
    begin = 0
    for end in range(1, len(calls) + 1):
        if end == len(calls) or calls[end] != calls[begin] or calls[begin][0] != "write":
            chosen += sorted({begin + 1, (begin + end + 1) // 2, end})
            begin = end
    return chosen


def numbers_of(calls: list[Call], kind: str, path: str) -> list[int]:
    """Of calls of a kind on paths that match an expression."""
    return [number for number, call in enumerate(calls, 1) if call[0] == kind and re.fullmatch(path, call[1])]


def around_renames(calls: list[Call]) -> list[int]:
    """The rename of the configuration; of the last checkpoint, writing its index, its rename, writing `latest` and
    its rename; of the old checkpoint, its rename, and the first and last removal in it."""
    last = [numbers_of(calls, kind, path)[-1] for kind, path in (
        ("rename", r"config\.toml\.unfinished"), ("write", r"checkpoints/step-\d+\..*/index\.json"),
        ("rename", r"checkpoints/step-\d+\.unfinished"), ("write", r"checkpoints/latest.*"),
        ("rename", r"checkpoints/latest.*"), ("rename", r"checkpoints/step-\d+"))]
    removals = numbers_of(calls, "unlink", r"checkpoints/step-\d+\.removed.*")
    return [*last, removals[0], removals[-1]]


def killed_at(crash: Crash) -> Callable[[Run, Curve], None]:
    def play(run: Run, expected: Curve) -> None:
        start = run.start(crash)
        code = start.end()
        require(code == 128 + signal.SIGKILL, f"exit code {code}, the call was not reached: {start.output}")
        finish(run, expected)

    return play


def error_at(crash: Crash, call: Call) -> Callable[[Run, Curve], None]:
    def play(run: Run, expected: Curve) -> None:
        start = run.start(crash)
        code = start.end()
        if "step 1/" in start.output:  # else it did not even begin
            require(f"step {run.shape.steps}/" in start.output, f"training did not go on: {start.output}")
        reason = os.strerror(crash.error)
        require(code == 0 or "accordion: [" in start.output, f"exit code {code} without a reason: {start.output}")
        if "Training goes on" in start.output:
            require(f"rank {crash.rank}: " in start.output and reason in start.output, f"no reason: {start.output}")
            if crash.error == errno.ENOSPC and re.fullmatch("(create|write|fallocate) checkpoints/.*", " ".join(call)):
                require("It needs " in start.output, f"how much is needed? {start.output}")
        finish(run, expected)

    return play


def trials_at_calls(programs: Programs, quick: bool) -> Iterator[Trial]:
    """In the background, only calls below the checkpoints' folder come in the same order each time."""
    for rank in range(NUM_RANKS):
        for is_async in (False, True):
            if quick and rank == 1 and is_async:
                continue
            shape = Shape(is_async=is_async)
            below = "checkpoints" if is_async else ""
            calls = calls_of(programs, shape, rank, below)
            numbers = each_once(calls)
            if quick:
                numbers = around_renames(calls) if rank == 0 and not is_async else numbers[len(numbers) // 2:][:1]
            way = "background" if is_async else "foreground"
            for number in numbers:
                crash = Crash(rank, at=number, below=below)
                yield Trial("killed at call", f"rank {rank}, {way}, call {number} of {len(calls)}: "
                            f"{' '.join(calls[number - 1])}", shape, killed_at(crash))


def trials_of_errors(programs: Programs, quick: bool) -> Iterator[Trial]:
    calls = [calls_of(programs, SHORT, rank, "") for rank in range(NUM_RANKS)]
    if quick:
        commit = numbers_of(calls[0], "rename", r"checkpoints/step-\d+\.unfinished")[-1]
        latest = numbers_of(calls[0], "create", "checkpoints/latest.*")
        metrics = numbers_of(calls[0], "fsync", "metrics.jsonl")
        shard = numbers_of(calls[1], "write", r".*/shard-.*")
        crashes = [Crash(0, commit + 1, errno.EIO), Crash(0, latest[0], errno.ENOSPC, rest=True),
                   Crash(0, metrics[0], errno.EIO), Crash(1, shard[1], errno.ENOSPC),
                   Crash(1, shard[-1], errno.ENOSPC, rest=True)]
    else:
        crashes = [Crash(rank, number, error, rest) for rank in range(NUM_RANKS) for number in each_once(calls[rank])
                   for error in ERRORS for rest in (False, True)]
    for crash in crashes:
        call = calls[crash.rank][crash.at - 1]
        yield Trial("error at call", f"rank {crash.rank}, call {crash.at}: {' '.join(call)}: "
                    f"{errno.errorcode[crash.error]}{', and all later ones' if crash.rest else ''}", SHORT,
                    error_at(crash, call))


# ---- Killed at random


def killed_at_random(seed: int) -> Callable[[Run, Curve], None]:
    def kill(start: Start, who: str) -> None:
        if who == "all":
            start.kill_all()
        else:
            with contextlib.suppress(ProcessLookupError, RuntimeError):
                os.kill(start.launcher.pid if who == "launcher" else start.rank(int(who)), signal.SIGKILL)

    def play(run: Run, expected: Curve) -> None:
        chance = random.Random(seed)
        newest = 0
        for _ in range(chance.randint(1, 4)):
            start = run.start()
            if chance.random() < 0.8:  # else while it starts
                with contextlib.suppress(RuntimeError):
                    wait_for(start, "it trains", lambda: "run folder" in start.output)
            time.sleep(chance.uniform(0, 0.8))
            kill(start, chance.choice(["all", "launcher", "0", "1"]))
            start.end()
            before, newest = newest, run.check_checkpoints()
            require(newest >= before, f"after step {before}, step {newest} is the newest")
        finish(run, expected)

    return play


def trials_at_random(seed: int, count: int) -> Iterator[Trial]:
    for number in range(count):
        yield Trial("killed at random", f"seed {seed + number}", Shape(LONG_STEPS, 1, number % 2 == 0),
                    killed_at_random(seed + number))


# ---- A disk that is too small, or turns read-only


def on_disk_of(kib: int, last_kept: int) -> Callable[[Run, Curve], None]:
    def play(run: Run, expected: Curve) -> None:
        folder = run.folder.with_suffix(".disk")
        with small_disk(folder, kib) as disk:
            run = Run(run.programs, run.folder.name, run.shape, folder, disk.pid)
            start = run.start()
            code = start.end()
            reason = r"accordion: \[save_checkpoint\] .*\n.*rank [01]: .* It needs \d+ bytes and \d+ are free"
            require(code == 1 and re.search(reason, start.output), f"exit code {code}: {start.output}")
            require(run.curve() == expected, f"training did not go on: {start.output}")
            require(run.check_checkpoints() == last_kept, f"kept {list(run.complete())}")
            remount(disk, "size=64m")
            finish(run, expected)

    return play


def on_disk_that_turns_read_only(run: Run, expected: Curve) -> None:
    folder = run.folder.with_suffix(".disk")
    with small_disk(folder, 65536) as disk:
        run = Run(run.programs, run.folder.name, run.shape, folder, disk.pid)
        start = run.start()
        wait_for(start, "it has saved twice", lambda: len(run.complete()) > 1)
        start.kill_all()
        start.end()
        newest = run.check_checkpoints()
        remount(disk, "ro")
        start = run.start()
        code = start.end()
        require(code == 1 and os.strerror(errno.EROFS) in start.output, f"exit code {code}: {start.output}")
        require(run.curve() == expected, f"training did not go on: {start.output}")
        require(run.check_checkpoints() == newest, f"{newest} was complete, now {list(run.complete())}")
        remount(disk, "rw")
        finish(run, expected)


def trials_on_disks() -> Iterator[Trial]:
    yield Trial("small disk", "room for none", SHORT, on_disk_of(300, 0))
    yield Trial("small disk", "room for one", SHORT, on_disk_of(900, 2))
    yield Trial("small disk", "room for one, in the background", Shape(is_async=True), on_disk_of(900, 2))
    yield Trial("small disk", "turns read-only", Shape(LONG_STEPS, 4), on_disk_that_turns_read_only)


# ---- Signals


def told_to_end(number: signal.Signals, who: str) -> Callable[[Run, Curve], None]:
    def play(run: Run, expected: Curve) -> None:
        start = run.start()
        wait_for(start, "step 3", lambda: steps_measured(run) >= 3)
        os.kill(start.launcher.pid if who == "launcher" else start.rank(int(who)), number)
        code = start.end()
        require(code == 0 and "stopped by a signal after" in start.output, f"exit code {code}: {start.output}")
        saved = run.check_checkpoints()
        require(3 <= saved < LONG_STEPS and saved == steps_measured(run), f"step {saved} was saved: {start.output}")
        finish(run, expected)

    return play


def told_again(run: Run, expected: Curve) -> None:
    """While a rank is stopped the first SIGINT cannot end the step, so a second one comes in time."""
    start = run.start()
    wait_for(start, "it has saved", lambda: len(run.complete()) > 0)
    stopped = start.rank(1)
    os.kill(stopped, signal.SIGSTOP)

    def rank_0_ends() -> bool:
        os.kill(start.launcher.pid, signal.SIGINT)
        return not start.runs(0)

    wait_for(start, "rank 0 has ended", rank_0_ends)
    os.kill(stopped, signal.SIGCONT)
    code = start.end()
    require(code == 128 + signal.SIGINT, f"exit code {code}: {start.output}")
    finish(run, expected)


def stopped_rank(run: Run, expected: Curve) -> None:
    start = run.start()
    wait_for(start, "it has saved", lambda: len(run.complete()) > 0)
    os.kill(start.rank(1), signal.SIGSTOP)
    code = start.end()
    require(code == 1 and "timed out" in start.output and "Still missing: rank 1" in start.output,
            f"exit code {code}: {start.output}")
    log = (run.folder / "log-rank0.txt").read_text()
    require("Still missing: rank 1" in log and "what this rank did last" in log, log)
    finish(run, expected)


def trials_of_signals(quick: bool) -> Iterator[Trial]:
    cases = [(number, who, is_async) for number in (signal.SIGTERM, signal.SIGINT) for who in ("launcher", "0", "1")
             for is_async in (False, True)]
    for number, who, is_async in (cases[1:2] + cases[-2:-1] if quick else cases):
        yield Trial("signals", f"{number.name} to {who if who == 'launcher' else f'rank {who}'}",
                    Shape(LONG_STEPS, 16, is_async), told_to_end(number, who))
    yield Trial("signals", "SIGINT again", Shape(LONG_STEPS, 2), told_again)
    yield Trial("stopped rank", "rank 1", Shape(LONG_STEPS, 2, timeout_s=4), stopped_rank)


# ---- All of them


def all_trials(programs: Programs, options: argparse.Namespace) -> list[Trial]:
    def chosen() -> Iterator[Trial]:
        yield from trials_of_signals(options.quick)
        yield from trials_at_random(options.seed, 3 if options.quick else options.random)
        yield from trials_at_calls(programs, options.quick)
        yield from trials_of_errors(programs, options.quick)
        if not options.quick:
            yield from trials_on_disks()

    return [trial for trial in chosen() if re.search(options.only, f"{trial.kind}: {trial.name}")]


def unbroken(programs: Programs, steps: int) -> Curve:
    run = Run(programs, f"unbroken-{steps}", Shape(steps))
    start = run.start()
    require(start.end() == 0, start.output)
    run.check_end(run.curve())
    require(steps_measured(run) == steps, start.output)
    return run.curve()


def play(programs: Programs, number: int, trial: Trial, curves: dict[int, Curve]) -> tuple[str, float]:
    """Why the run is lost, or nothing; and the seconds."""
    run = Run(programs, f"trial-{number:04}", trial.shape)
    begun = time.monotonic()
    try:
        trial.play(run, curves[trial.shape.steps])
        shutil.rmtree(run.folder)
        lost = ""
    except (RuntimeError, OSError, ValueError) as error:
        lost = f"{type(error).__name__}: {error}"
        print(f"LOST  {trial.kind}: {trial.name}, see {run.folder}\n{lost}\n", flush=True)
    return lost, time.monotonic() - begun


def run_trials(programs: Programs, options: argparse.Namespace) -> int:
    programs.write_config(TEXT)
    curves = {steps: unbroken(programs, steps) for steps in (SHORT.steps, LONG_STEPS)}
    trials = all_trials(programs, options)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda item: play(programs, *item, curves), enumerate(trials)))
    print(f"{'kind':18}{'trials':>8}{'lost':>6}{'seconds':>9}    (seeds from {options.seed})")
    for kind in dict.fromkeys(trial.kind for trial in trials):
        of_kind = [result for trial, result in zip(trials, results) if trial.kind == kind]
        print(f"{kind:18}{len(of_kind):8}{sum(bool(lost) for lost, _ in of_kind):6}"
              f"{sum(seconds for _, seconds in of_kind):9.1f}")
    return sum(bool(lost) for lost, _ in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in ("accordion", "crash-point", "verify"):
        parser.add_argument(f"--{program}", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="trials whose 'KIND: NAME' matches this expression")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=100, help="trials that are killed at random")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="accordion-trials-")).resolve()
    lost = run_trials(Programs(options.accordion, options.crash_point, options.verify, work), options)
    if lost == 0:
        shutil.rmtree(work)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
