# SPDX-License-Identifier: BSD-3-Clause
"""A small training run that is ended in some way and gone on with, and what must be true of it in the end."""
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time

TIMEOUT_S = 120.0  # of one start, from beginning to end
NUM_RANKS = 2
KEEP = 2
EVAL_EVERY = 3

MODEL = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
         "attention_bias": False, "mlp_bias": False}

# The learning rate changes at every step and text is held out, so that a run that goes on at a wrong position shows it.
CONFIG = """model.config = "model.json"
data.path = "{text}"
data.seq_len = 32
data.cache_dir = "cache"
train.batch_size = 1
train.threads = 1
optimizer.lr = 1e-3
schedule.name = "linear"
schedule.warmup_steps = 2
eval.every = {eval_every}
eval.sequences = 2
checkpoint.keep = {keep}
log.every = 1
"""


@dataclasses.dataclass(frozen=True)
class Programs:
    """What a trial is made of, and the folder that all trials share."""
    accordion: pathlib.Path
    crash_point: pathlib.Path  # library
    verify: pathlib.Path
    work: pathlib.Path

    def write_config(self, text: pathlib.Path) -> None:
        (self.work / "model.json").write_text(json.dumps(MODEL))
        (self.work / "config.toml").write_text(CONFIG.format(text=text, keep=KEEP, eval_every=EVAL_EVERY))


@dataclasses.dataclass(frozen=True)
class Shape:
    """How long a run is and how often it saves; runs of one shape have the same curve."""
    steps: int = 6
    every: int = 2
    is_async: bool = False
    timeout_s: int = 60

    @property
    def keys(self) -> list[str]:
        return [f"train.steps={self.steps}", f"checkpoint.every={self.every}",
                f"checkpoint.async={str(self.is_async).lower()}", f"fsdp.timeout={self.timeout_s}"]


@dataclasses.dataclass(frozen=True)
class Crash:
    """The call at which a rank ends, or that fails; see tests/support/crash_point.cpp."""
    rank: int
    at: int = 0
    error: int = 0  # of errno; 0: the rank is killed
    rest: bool = False
    below: str = ""  # of the run folder; empty: all of it


def processes_of(group: int) -> list[int]:
    """The processes of a group that live, zombies left out."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


class Start:
    """`accordion train --resume auto`, from its start to the end of its last process."""

    def __init__(self, arguments: list[str], environment: dict[str, str], out: pathlib.Path) -> None:
        self.out = out
        self.begun = time.monotonic()
        with open(out, "wb") as file:
            self.launcher = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                             env=environment, start_new_session=True)

    @property
    def output(self) -> str:
        return self.out.read_text(errors="replace")

    def rank(self, number: int) -> int:
        """The process of a rank."""
        pid = self._find(number)
        require(pid is not None, f"rank {number} is not running: {self.output}")
        return pid

    def runs(self, number: int) -> bool:
        return self._find(number) is not None

    def _find(self, number: int) -> int | None:
        for pid in processes_of(self.launcher.pid):
            with contextlib.suppress(OSError):
                if f"\0RANK={number}\0".encode() in b"\0" + pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                    return pid
        return None

    def kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGKILL)

    def end(self, timeout_s: float = TIMEOUT_S) -> int:
        """Waits until no process is left; the launcher's exit code, or minus the signal that ended it."""
        deadline = time.monotonic() + timeout_s
        try:
            code = self.launcher.wait(timeout_s)
            while processes_of(self.launcher.pid):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"ranks outlive their launcher: {self.output}")
                time.sleep(0.01)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"did not end within {timeout_s:.0f} s: {self.output}") from None
        finally:
            self.kill_all()
            self.launcher.wait()
        return code


class Run:
    """A run folder, from its first start to its end."""

    def __init__(self, programs: Programs, name: str, shape: Shape, checkpoints: pathlib.Path | None = None,
                 within: int = 0) -> None:
        """`checkpoints` is checkpoint.dir, as the mount namespace of process `within` sees it where that is set."""
        self.programs = programs
        self.shape = shape
        self.folder = programs.work / name
        self.within = within
        self.keys = [] if checkpoints is None else [f"checkpoint.dir={checkpoints}"]
        seen = pathlib.Path(f"/proc/{within}/root") if within else pathlib.Path("/")
        self.checkpoints = (self.folder / "checkpoints" if checkpoints is None
                            else seen / checkpoints.relative_to("/"))
        self.num_starts = 0

    def start(self, crash: Crash | None = None, *keys: str, log: pathlib.Path | None = None) -> Start:
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        if crash is not None:
            folder = self.folder / crash.below if crash.below else self.folder
            environment |= {"LD_PRELOAD": str(self.programs.crash_point), "CRASH_FOLDER": str(folder),
                            "CRASH_RANK": str(crash.rank), "CRASH_AT": str(crash.at)}
            environment |= {"CRASH_ERROR": str(crash.error)} if crash.error else {}
            environment |= {"CRASH_REST": "1"} if crash.rest else {}
            environment |= {"CRASH_LOG": str(log)} if log else {}
        self.num_starts += 1
        enter = ["nsenter", "--mount", f"--target={self.within}"] if self.within else []
        return Start([*enter, str(self.programs.accordion), "train", str(self.programs.work / "config.toml"),
                      f"run.dir={self.folder}", *self.shape.keys, *self.keys, *keys, "--nproc", str(NUM_RANKS),
                      "--resume", "auto"],
                     environment, self.folder.with_name(f"{self.folder.name}.{self.num_starts}.txt"))

    def complete(self) -> dict[int, pathlib.Path]:
        """Checkpoints by their step, oldest first."""
        found = {}
        for path in self.checkpoints.glob("step-*"):
            if path.name.removeprefix("step-").isdigit():
                found[int(path.name.removeprefix("step-"))] = path
        return dict(sorted(found.items()))

    def check_checkpoints(self) -> int:
        """Reads every byte of those that look complete, and returns the newest one's step, or 0."""
        found = self.complete()
        for path in found.values():
            check = subprocess.run([self.programs.verify, path], capture_output=True, text=True)
            require(check.returncode == 0, f"{path} looks complete: {check.stdout}{check.stderr}")
        return max(found, default=0)

    def go_on(self) -> Start:
        """Starts it where it was left, to its end."""
        newest = self.check_checkpoints()
        start = self.start()
        code = start.end()
        require(code == 0, f"going on: exit code {code}: {start.output}")
        if newest > 0:
            require(f"resumed at step {newest} from" in start.output or f"has done its {newest} steps" in start.output,
                    f"step {newest} was complete, but: {start.output}")
        return start

    def curve(self) -> list[tuple]:
        """What was measured at each step, in the order of the file; timing is left out, and so is the held-out text
        where a signal ended the run between two measurements of it."""
        measured = []
        for line in (self.folder / "metrics.jsonl").read_text().splitlines():
            values = json.loads(line)
            if "loss" in values:
                measured.append(tuple(values[name] for name in ("step", "loss", "grad_norm", "lr", "epoch")))
            elif "val_loss" in values and (values.get("step", -2) + 1) % EVAL_EVERY == 0:
                measured.append((values["step"], values["val_loss"]))
        return measured

    def check_end(self, expected: list[tuple]) -> None:
        """All that must be true of a run that has done its steps, however often it was ended on the way."""
        curve = self.curve()
        require(curve == expected, f"another curve: {curve} instead of {expected}")
        require(self.check_checkpoints() == self.shape.steps, f"checkpoints of {list(self.complete())}")
        require(len(self.complete()) == KEEP, f"not {KEEP} checkpoints, but of {list(self.complete())}")
        latest = (self.checkpoints / "latest").read_text()
        newest = list(self.complete().values())[-1].name
        require(latest == newest + "\n", f"latest is {latest!r}, the newest is {newest}")
        left = [path for ending in ("unfinished", "removed")
                for folder in (self.folder, self.checkpoints) for path in folder.rglob(f"*.{ending}")]
        require(not left, f"left behind: {left}")


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise RuntimeError(otherwise)
