# SPDX-License-Identifier: BSD-3-Clause
"""Programs that run at the same time, with a time limit, and why one failed."""
import contextlib
import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass, field


GRACE_S = 15.0  # that programs may take to end when told to


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    out: pathlib.Path  # stdout; stderr goes to the same name with .err
    cores: frozenset[int] | None = None  # None: all
    environment: dict[str, str] = field(default_factory=dict)  # added

    @property
    def err(self) -> pathlib.Path:
        return self.out.with_name(self.out.name + ".err")

    def start(self) -> subprocess.Popen[bytes]:
        cores = self.cores
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            return subprocess.Popen(
                self.arguments, stdout=out, stderr=err, env={**os.environ, **self.environment}, start_new_session=True,
                preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None)


def run_all(commands: list[Command], timeout_s: float) -> str | None:
    """Runs commands at the same time; None when all went well, else what went wrong."""
    running: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + timeout_s
    try:
        for command in commands:
            try:
                running.append(command.start())
            except OSError as error:
                return f"cannot start: {error}"
        for command, process in zip(commands, running):
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"did not end within {timeout_s:.0f} s, see {command.err}"
            if code != 0:
                return f"exit code {code}: {_reason(command)}, see {command.err}"
    finally:
        for process in running:
            _end(process)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that still runs, and those it started. Launchers end their ranks, which have sessions of their own,
    when they are told to end; so they are killed only if they do not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)


def _reason(command: Command) -> str:
    """The line that most likely says what happened: the first error that a program raised, or its last line."""
    lines = [line.strip() for line in command.err.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line or line.startswith("accordion: ")]
    return (errors or lines or ["no message"])[0 if errors else -1][:200]
