# SPDX-License-Identifier: BSD-3-Clause
"""Who trains: Accordion, and the trainers of peers/. Each knows its command lines and how to read its result."""
import json
import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

from .cells import Cell
from .processes import Command, run_all
from .run_result import RunResult, from_bench, from_peer_log, side_by_side

PEERS = pathlib.Path(__file__).parent.parent / "peers"
WARMUP_STEPS = 3  # what `accordion bench` leaves out


@dataclass(frozen=True)
class Setting:
    """What holds for every run."""
    work: pathlib.Path  # folder for weights, logs and caches
    accordion: pathlib.Path
    torch_python: pathlib.Path  # interpreters of the peers
    jax_python: pathlib.Path
    data: pathlib.Path
    steps: int  # measured; WARMUP_STEPS come before them
    timeout_s: float

    def model_file(self, cell: Cell) -> pathlib.Path:
        return self.work / f"{cell.shape}.json"

    def weights_file(self, cell: Cell) -> pathlib.Path:
        return self.work / f"{cell.shape}.safetensors"


@dataclass(frozen=True)
class Trainer:
    name: str
    train: Callable[[Setting, Cell, pathlib.Path], RunResult]  # the path: for logs, without suffix
    trains_alone: bool = False  # ranks share nothing: its losses are those of one rank


# ---- Accordion ---------------------------------------------------------------------------------

MEMORY_OPTIONS = {"checkpointed": {"memory.activation_checkpointing": "full"},
                  "checkpointed-2": {"memory.activation_checkpointing": "2"},
                  "selective": {"memory.activation_checkpointing": "selective"},
                  "chunked-loss": {"memory.chunked_loss_tokens": 128},
                  "in-backward": {"memory.optimizer_in_backward": "true"},
                  "offloaded": {"memory.offload": "optimizer", "checkpoint.async": "false"},
                  "gradients-offloaded": {"memory.offload": "gradients", "checkpoint.async": "false"},
                  "all-offloaded": {"memory.offload": "parameters", "checkpoint.async": "false"},
                  "activations-offloaded": {"memory.activation_checkpointing": "full",
                                            "memory.offload_activations": "true"},
                  "bf16-moments": {"optimizer.moments_dtype": "bf16"}}


def _bench_command(setting: Setting, cell: Cell, ranks: int, more: dict[str, object] | None = None) -> list[str]:
    keys = {
        "model.config": setting.model_file(cell), "model.init": setting.weights_file(cell),
        "data.path": setting.data, "data.order": "strided", "data.validation_fraction": 0.0,
        "data.seq_len": cell.seq, "train.batch_size": cell.batch, "train.threads": 1,
        "train.steps": WARMUP_STEPS + setting.steps, "optimizer.lr": 3e-4, "optimizer.betas": "[0.9, 0.95]",
        "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1, "optimizer.decay_norms": "true",
        "optimizer.clip_norm": 1.0, "schedule.name": "constant", "fsdp.param_dtype": cell.dtype,
        **(more or {}),
    }
    empty = setting.work / "empty.toml"
    empty.write_text("# Every key is given on the command line.\n")
    return [str(setting.accordion), "bench", str(empty), *(f"{k}={v}" for k, v in keys.items()),
            "--nproc", str(ranks), "--steps", str(setting.steps), "--json"]


def _bench(setting: Setting, commands: list[Command]) -> RunResult:
    error = run_all(commands, setting.timeout_s)
    if error is not None:
        return RunResult(error=error)
    runs = [from_bench(command.out.read_text()) for command in commands]
    return runs[0] if len(runs) == 1 else side_by_side(runs)


def _accordion(name: str, more: dict[str, object] | None = None) -> Trainer:
    def train(setting: Setting, cell: Cell, log: pathlib.Path) -> RunResult:
        command = _bench_command(setting, cell, cell.ranks, more)
        return _bench(setting, [Command(command, log.with_suffix(".json"))])

    return Trainer(name, train)


def _accordion_local(setting: Setting, cell: Cell, log: pathlib.Path) -> RunResult:
    """As many runs of one rank as there are ranks, at once, each on cores of its own where there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // cell.ranks

    def cores_of(rank: int) -> frozenset[int]:
        return frozenset(cores[rank * share:(rank + 1) * share] if share else cores)

    return _bench(setting, [Command(_bench_command(setting, cell, 1), log.with_suffix(f".{rank}.json"), cores_of(rank))
                            for rank in range(cell.ranks)])


# ---- Peers -------------------------------------------------------------------------------------

def _peer_flags(setting: Setting, cell: Cell, log: pathlib.Path) -> list[str]:
    return ["--config", str(setting.model_file(cell)), "--init", str(setting.weights_file(cell)),
            "--data", str(setting.data), "--steps", str(WARMUP_STEPS + setting.steps), "--warmup", str(WARMUP_STEPS),
            "--seq", str(cell.seq), "--out", str(log.with_suffix(".jsonl"))]


def _peer(setting: Setting, command: list[str], log: pathlib.Path, threads: int) -> RunResult:
    steps = log.with_suffix(".jsonl")
    steps.unlink(missing_ok=True)
    environment = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo",
                   "TORCHINDUCTOR_CACHE_DIR": str(setting.work / "inductor")}
    error = run_all([Command(command, log.with_suffix(".txt"), environment=environment)], setting.timeout_s)
    return RunResult(error=error) if error is not None else from_peer_log(steps, WARMUP_STEPS)


def _torchrun(setting: Setting, ranks: int, script: str, flags: list[str]) -> list[str]:
    return [str(setting.torch_python), "-m", "torch.distributed.run", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "localhost:0", "--nproc-per-node", str(ranks), str(PEERS / script), *flags]


def _torch_peer(name: str, script: str, *flags: str, trains_alone: bool = False) -> Trainer:
    def train(setting: Setting, cell: Cell, log: pathlib.Path) -> RunResult:
        all_flags = [*_peer_flags(setting, cell, log), "--batch", str(cell.batch), "--dtype", cell.dtype, *flags]
        return _peer(setting, _torchrun(setting, cell.ranks, script, all_flags), log, threads=1)

    return Trainer(name, train, trains_alone)


def _jax_peer(name: str, *flags: str) -> Trainer:
    def train(setting: Setting, cell: Cell, log: pathlib.Path) -> RunResult:
        command = [str(setting.jax_python), str(PEERS / "jax_train.py"), *_peer_flags(setting, cell, log),
                   "--batch", str(cell.batch), "--dtype", cell.dtype, "--ranks", str(cell.ranks), *flags]
        return _peer(setting, command, log, threads=1)

    return Trainer(name, train)


def _all() -> list[Trainer]:
    trainers = [_accordion("accordion"), Trainer("accordion-local", _accordion_local, trains_alone=True)]
    trainers += [_accordion(f"accordion-{option}", keys) for option, keys in MEMORY_OPTIONS.items()]
    for name, flags in {"local": ["--mode", "local"], "ddp": ["--mode", "ddp"],
                        "fsdp2": ["--mode", "fsdp2", "--zero", "3"], "fsdp2-zero2": ["--mode", "fsdp2", "--zero", "2"],
                        "fsdp1": ["--mode", "fsdp1", "--zero", "3"]}.items():
        alone = name == "local"
        trainers.append(_torch_peer(f"torch-{name}", "torch_train.py", *flags, trains_alone=alone))
        trainers.append(_torch_peer(f"torch-{name}-compile", "torch_train.py", *flags, "--compile", trains_alone=alone))
    for zero in ("2", "3"):
        trainers.append(_torch_peer(f"deepspeed-zero{zero}", "deepspeed_train.py", "--zero", zero))
    trainers.append(_jax_peer("jax", "--zero", "3"))
    return trainers


TRAINERS = {trainer.name: trainer for trainer in _all()}


# ---- What losses are compared with -------------------------------------------------------------

def reference_losses(setting: Setting, cell: Cell, ranks: int, log: pathlib.Path) -> RunResult:
    """One PyTorch process in fp32 with the batches of `ranks` ranks, on all cores."""
    threads = len(os.sched_getaffinity(0))
    flags = [*_peer_flags(setting, cell, log), "--batch", str(cell.batch * ranks), "--dtype", "fp32", "--mode", "single",
             "--threads", str(threads)]
    return _peer(setting, _torchrun(setting, 1, "torch_train.py", flags), log, threads)


def prepare(setting: Setting, cell: Cell) -> str | None:
    """Writes the model's configuration and its first weights, where they are not there; what went wrong, if it did."""
    setting.model_file(cell).write_text(json.dumps(cell.model))
    weights = setting.weights_file(cell)
    if weights.exists():
        return None
    part = weights.with_suffix(".part")
    error = run_all([Command([str(setting.torch_python), str(PEERS / "make_init.py"), "--config",
                              str(setting.model_file(cell)), "--out", str(part)], weights.with_suffix(".txt"))],
                    setting.timeout_s)
    if error is None:
        part.rename(weights)
    return error
