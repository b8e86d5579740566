# SPDX-License-Identifier: BSD-3-Clause
"""Runs trainers in turn, so that a change of the machine's load meets all of them, and checks their losses."""
import dataclasses
import json
import sys
from dataclasses import dataclass, field

from .cells import Cell
from .run_result import RunResult
from .trainers import Setting, Trainer, prepare, reference_losses

# Largest relative difference of a step's loss from one PyTorch process in fp32. bf16 has 8 bits of mantissa.
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}


@dataclass
class Runs:
    """All runs of one trainer on one cell."""
    good: list[RunResult] = field(default_factory=list)
    deviation: float = 0.0  # of losses, the largest
    faults: list[str] = field(default_factory=list)  # of runs that do not count


Results = dict[str, Runs]  # by trainer


def deviation(losses: list[float], reference: list[float]) -> float:
    return max(abs(x - y) / abs(y) for x, y in zip(losses, reference, strict=True))


class Runner:
    def __init__(self, setting: Setting, trainers: list[Trainer]):
        self.setting, self.trainers = setting, trainers
        self.interrupted = False
        self._references: dict[tuple[str, int, int, int], list[float]] = {}

    def run(self, cells: list[Cell], repeats: int) -> dict[Cell, Results]:
        """All repeats; what there is so far when SIGINT (Ctrl-C) ends them early."""
        results = {cell: {trainer.name: Runs() for trainer in self.trainers} for cell in cells}
        try:
            for repeat in range(repeats):
                for cell in cells:
                    self._prepare(cell)
                    turn = repeat % len(self.trainers)
                    for trainer in self.trainers[turn:] + self.trainers[:turn]:
                        self._run_one(trainer, cell, repeat, results[cell][trainer.name])
        except KeyboardInterrupt:
            self.interrupted = True
        return results

    def _prepare(self, cell: Cell) -> None:
        error = prepare(self.setting, cell)
        if error is not None:
            sys.exit(f"{cell.name}: its first weights cannot be made: {error}")

    def _run_one(self, trainer: Trainer, cell: Cell, repeat: int, runs: Runs) -> None:
        reference = self._reference(cell, 1 if trainer.trains_alone else cell.ranks)
        log = self.setting.work / f"{cell.name}.{trainer.name}.{repeat}.log"
        result = trainer.train(self.setting, cell, log)
        if result.error is None:
            result = self._checked(result, reference, cell, runs)
        self._record(cell, trainer, repeat, result)
        if result.error is None:
            runs.good.append(result)
            print(f"{cell.name} {trainer.name}: {result.tokens_per_s:.0f} tokens/s", file=sys.stderr, flush=True)
        else:
            runs.faults.append(result.error)
            print(f"{cell.name} {trainer.name}: {result.error}", file=sys.stderr, flush=True)

    def _record(self, cell: Cell, trainer: Trainer, repeat: int, result: RunResult) -> None:
        """Adds a run to results.jsonl, which outlives this one."""
        line = {"cell": cell.name, "trainer": trainer.name, "repeat": repeat, **dataclasses.asdict(result)}
        with open(self.setting.work / "results.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    @staticmethod
    def _checked(result: RunResult, reference: list[float], cell: Cell, runs: Runs) -> RunResult:
        differs = deviation(result.losses, reference)
        runs.deviation = max(runs.deviation, differs)
        if differs <= LOSS_TOLERANCE[cell.dtype]:
            return result
        return dataclasses.replace(result, error=f"losses differ by {differs:.1e} from one process in fp32, "
                                                 f"more than {LOSS_TOLERANCE[cell.dtype]:.0e}")

    def _reference(self, cell: Cell, ranks: int) -> list[float]:
        key = (cell.shape, cell.seq, cell.batch, ranks)
        if key not in self._references:
            log = self.setting.work / f"{cell.shape}.reference.{ranks}.log"
            result = reference_losses(self.setting, cell, ranks, log)
            if result.error is not None:
                sys.exit(f"{cell.shape}: the losses that all are compared with are missing: {result.error}")
            self._references[key] = result.losses
        return self._references[key]
