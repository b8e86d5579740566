# SPDX-License-Identifier: BSD-3-Clause
"""The harness of benchmarks/compare.py: turns, checks of losses, failures, tables. No trainer is needed."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

from harness import runner
from harness.cells import SCALING_AXES, Cell, scaling_cells, shape_cells
from harness.processes import Command, run_all
from harness.run_result import RunResult, from_peer_log, side_by_side
from harness.runner import Runner, Runs
from harness.table import cell_table, scaling_table
from harness.trainers import TRAINERS, Trainer

REFERENCE = [4.0, 3.0]


def result(tokens_per_s: float, losses: list[float] | None = None, **more: float) -> RunResult:
    return RunResult(losses=losses or REFERENCE, tokens_per_s=tokens_per_s, step_ms=1.0, peak_mib=100.0, **more)


def trainer(name: str, answer: RunResult, calls: list[str] | None = None) -> Trainer:
    def train(setting: object, cell: Cell, log: pathlib.Path) -> RunResult:
        if calls is not None:
            calls.append(name)
        return answer

    return Trainer(name, train)


def run(trainers: list[Trainer], cells: list[Cell], repeats: int) -> dict[Cell, runner.Results]:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(runner, "prepare", return_value=None), \
            mock.patch.object(runner, "reference_losses", return_value=result(1.0)), \
            contextlib.redirect_stderr(io.StringIO()):
        work = pathlib.Path(folder)
        results = Runner(mock.Mock(work=work), trainers).run(cells, repeats)
        recorded = (work / "results.jsonl").read_text().splitlines()
    counted = sum(len(runs.good) + len(runs.faults) for by_trainer in results.values() for runs in by_trainer.values())
    assert len(recorded) == counted, recorded
    return results


def runs(pid: int) -> bool:
    """Whether a process lives and is no zombie."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class RunnerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.cells = shape_cells(["tiny"], ["fp32"], ranks=2)

    def test_each_repeat_begins_with_another_trainer(self) -> None:
        calls: list[str] = []
        run([trainer(name, result(1.0), calls) for name in "abc"], self.cells, repeats=3)
        self.assertEqual("".join(calls), "abcbcacab")

    def test_one_that_fails_does_not_stop_the_others(self) -> None:
        got = run([trainer("bad", RunResult(error="no compiler")), trainer("good", result(7.0))], self.cells, 2)
        by_trainer = got[self.cells[0]]
        self.assertEqual(by_trainer["bad"].faults, ["no compiler"] * 2)
        self.assertEqual([r.tokens_per_s for r in by_trainer["good"].good], [7.0, 7.0])

    def test_speed_with_other_losses_does_not_count(self) -> None:
        off = [4.0, 3.0 * 1.0002]
        for dtype, counts in (("fp32", 0), ("bf16", 1)):
            cells = shape_cells(["tiny"], [dtype], ranks=2)
            runs = run([trainer("off", result(9.0, off))], cells, 1)[cells[0]]["off"]
            self.assertEqual(len(runs.good), counts, dtype)
            self.assertAlmostEqual(runs.deviation, 2e-4)
            self.assertEqual(["losses differ by 2.0e-04" in fault for fault in runs.faults], [True] * (1 - counts))

    def test_interrupt_leaves_what_there_is(self) -> None:
        def interrupted(setting: object, cell: Cell, log: pathlib.Path) -> RunResult:
            raise KeyboardInterrupt

        got = run([trainer("a", result(1.0)), Trainer("b", interrupted), trainer("c", result(2.0))], self.cells, 2)
        table = cell_table(self.cells[0], got[self.cells[0]])
        self.assertIn("| a | 1 | 1, 1 |", table)
        self.assertIn("| c | not run |", table)

    def test_missing_steps_are_an_error(self) -> None:
        with self.assertRaises(ValueError):
            runner.deviation([4.0], REFERENCE)


class RunResultTest(unittest.TestCase):
    def test_controls_add_their_speed_and_must_agree(self) -> None:
        both = side_by_side([result(10.0), result(12.0)])
        self.assertEqual((both.tokens_per_s, both.peak_mib, both.losses), (22.0, 200.0, REFERENCE))
        self.assertIn("different losses", side_by_side([result(1.0), result(1.0, [4.0, 3.1])]).error or "")

    def test_log_of_a_peer(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log.jsonl"
            steps = [{"step": i, "loss": 4.0 - i, "minor_faults": faults} for i, faults in enumerate([900, 5, 7])]
            log.write_text("".join(json.dumps(step) + "\n" for step in steps))
            self.assertIn("after 3 steps", from_peer_log(log, warmup=1).error or "")
            summary = {"summary": True, "tokens_per_s": 50.0, "step_ms_median": 2.0,
                       "rss_mib": [{"train_peak": 600.0}, {"train_peak": 610.0}]}
            log.write_text(log.read_text() + json.dumps(summary) + "\n")
            got = from_peer_log(log, warmup=1)
            self.assertEqual((got.losses, got.page_faults, got.peak_mib), ([4.0, 3.0, 2.0], 6.0, 1210.0))


class ProcessesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out.txt"

    def python(self, program: str) -> Command:
        return Command([sys.executable, "-c", program], self.out)

    def test_output_and_environment(self) -> None:
        command = Command(["sh", "-c", "echo $COLOUR"], self.out, environment={"COLOUR": "blue"})
        self.assertIsNone(run_all([command], timeout_s=20))
        self.assertEqual(self.out.read_text(), "blue\n")

    def test_failure_is_told_in_the_programs_words(self) -> None:
        error = run_all([self.python("raise RuntimeError('no compiler found')")], timeout_s=20) or ""
        self.assertIn("exit code 1: RuntimeError: no compiler found", error)
        self.assertIn("out.txt.err", error)
        self.assertIn("cannot start", run_all([Command(["/no/such/program"], self.out)], timeout_s=20) or "")

    def test_time_limit_ends_the_children_too(self) -> None:
        began = time.monotonic()
        error = run_all([Command(["sh", "-c", "sleep 60 & wait"], self.out)], timeout_s=0.2) or ""
        self.assertIn("did not end within", error)
        self.assertLess(time.monotonic() - began, 30)

    def test_launcher_may_end_its_ranks_in_other_sessions(self) -> None:
        rank = self.out.with_name("rank")
        launcher = f"trap 'kill $!; exit 1' TERM; setsid sleep 60 & echo $! > {rank}; wait"
        self.assertIn("did not end", run_all([Command(["sh", "-c", launcher], self.out)], timeout_s=1) or "")
        pid = int(rank.read_text())
        deadline = time.monotonic() + 20
        while runs(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(runs(pid))


class CellsTest(unittest.TestCase):
    def test_one_thing_changes_along_an_axis(self) -> None:
        for axis in SCALING_AXES:
            cells = scaling_cells(axis, ["fp32"])
            self.assertEqual(len({cell.name for cell in cells}), 3, axis)
        ranks = scaling_cells("ranks", ["bf16"])
        self.assertEqual([cell.ranks for cell in ranks], [1, 2, 4])
        vocabulary = scaling_cells("vocabulary", ["fp32"])
        self.assertEqual([cell.model["vocab_size"] for cell in vocabulary], [256, 32_768, 131_072])
        for cell in scaling_cells("width", ["fp32"]):
            self.assertEqual(cell.model["hidden_size"], 64 * cell.model["num_attention_heads"])


class TableTest(unittest.TestCase):
    def setUp(self) -> None:
        self.cell = shape_cells(["tiny"], ["fp32"], ranks=2)[0]
        parts = dict.fromkeys(("compute", "gather", "reduce", "optimizer", "data", "other"), 1.0) | {"step": 6.0}
        ours = [RunResult(losses=REFERENCE, tokens_per_s=speed, step_ms=3.0, peak_mib=80.0, matmul_gflops=300.0,
                          memory_gb_per_s=14.0, breakdown_ms=parts) for speed in (300.0, 280.0, 320.0)]
        self.results = {"accordion": Runs(good=ours, deviation=1e-6), "torch-fsdp2": Runs(good=[result(150.0)]),
                        "jax": Runs(faults=["cannot start: no such file"])}

    def test_speed_spread_ratio_and_failures(self) -> None:
        lines = cell_table(self.cell, self.results).splitlines()
        rows = {line.split("|")[1].strip(): [entry.strip() for entry in line.split("|")[2:-1]]
                for line in lines if line.startswith("|")}
        self.assertEqual(rows["accordion"], ["300", "280, 320", "1.00", "3", "80", "0", "1.0e-06", "3 of 3"])
        self.assertEqual(rows["torch-fsdp2"][:3], ["150", "150, 150", "2.00"])
        self.assertEqual(rows["jax"][0], "failed: cannot start: no such file")
        self.assertEqual(rows["matmul rate, GFLOP/s"], ["300", "300, 300"])
        self.assertEqual(rows["median of runs"][-1], "6.0")
        for name in ("torch-fsdp2", "jax"):
            self.assertEqual(len(rows[name]), len(rows["trainer"]), name)

    def test_without_ours_there_are_no_ratios(self) -> None:
        del self.results["accordion"]
        self.assertIn("| 150 | 150, 150 |  |", cell_table(self.cell, self.results))

    def test_scaling(self) -> None:
        self.assertIn("| tiny-fp32-2 | 300 (1.00) | 150 (2.00) | failed |",
                      scaling_table("ranks", {self.cell: self.results}))


class TrainersTest(unittest.TestCase):
    def test_those_that_are_promised_are_there(self) -> None:
        eager = ["torch-local", "torch-ddp", "torch-fsdp1", "torch-fsdp2", "torch-fsdp2-zero2"]
        ours = ["accordion", "accordion-local", "accordion-checkpointed", "accordion-checkpointed-2",
                "accordion-selective", "accordion-chunked-loss", "accordion-in-backward", "accordion-offloaded",
                "accordion-gradients-offloaded", "accordion-all-offloaded", "accordion-activations-offloaded",
                "accordion-bf16-moments"]
        self.assertEqual(set(TRAINERS), {*ours, *eager, *(f"{name}-compile" for name in eager),
                                         "deepspeed-zero2", "deepspeed-zero3", "jax"})
        self.assertEqual({name for name, t in TRAINERS.items() if t.trains_alone},
                         {"accordion-local", "torch-local", "torch-local-compile"})


if __name__ == "__main__":
    unittest.main()
