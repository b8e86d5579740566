#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Exposed communication of a step between hosts, beside what its schedule makes unavoidable.

    overlap.py CONFIG.toml [key=value ...]

Two network namespaces, joined by a cable of a given rate, play two hosts of one rank each, which run `accordion bench`
over Gloo. Needs root (namespaces, `tc`).

The ranks' traces of a step say when each collective was started and how long each was waited for. The same actions are
then replayed over an ideal link: every computation as long as it was, on either rank; a collective moves when both ranks
started it and those before it are through, at the rate that a plain TCP stream reached on the cable. What that replay
still waits is unavoidable with this schedule; the rest of the waiting is ours.
"""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HOSTS = ("accordion-a", "accordion-b")
ADDRESSES = ("10.78.0.1", "10.78.0.2")
PORT = 29581
STREAM_BYTES = 64 << 20
MS = 1e-3  # of a microsecond, the unit of traces


def run(*command):
    subprocess.run(command, check=True)


@contextlib.contextmanager
def two_hosts(gbit):
    """Namespaces with a cable that lets `gbit` Gbit/s through in each direction."""
    try:
        for host in HOSTS:
            run("ip", "netns", "add", host)
            run("ip", "-n", host, "link", "set", "lo", "up")
        run("ip", "link", "add", "accordion0", "netns", HOSTS[0], "type", "veth",
            "peer", "name", "accordion0", "netns", HOSTS[1])
        for host, address in zip(HOSTS, ADDRESSES):
            run("ip", "-n", host, "address", "add", f"{address}/24", "dev", "accordion0")
            run("ip", "-n", host, "link", "set", "accordion0", "up")
            run("ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "accordion0", "root", "tbf",
                "rate", f"{gbit}gbit", "burst", "256k", "latency", "20ms")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(("ip", "netns", "del", host), stderr=subprocess.DEVNULL, check=False)


def receive_stream():
    with socket.create_server((ADDRESSES[1], PORT)) as server:
        print("listening", flush=True)
        connection, _ = server.accept()
        with connection:
            left = STREAM_BYTES
            while left > 0:
                left -= len(connection.recv(1 << 20))
            connection.sendall(b"!")


def send_stream():
    with socket.create_connection((ADDRESSES[1], PORT)) as connection:
        start = time.perf_counter()
        connection.sendall(bytes(STREAM_BYTES))
        connection.recv(1)
        print(STREAM_BYTES / (time.perf_counter() - start))


def in_host(host, *command):
    return ("ip", "netns", "exec", HOSTS[host], *command)


def stream_rate():
    """Bytes a second of one TCP stream on the cable."""
    me = (sys.executable, os.path.abspath(__file__))
    with subprocess.Popen(in_host(1, *me, "--receive"), stdout=subprocess.PIPE, text=True) as receiver:
        receiver.stdout.readline()
        sent = subprocess.run(in_host(0, *me, "--send"), check=True, capture_output=True, text=True)
    return float(sent.stdout)


def transport_share(processes):
    """The part of the ranks' processor time that threads beside their first ones take, until they end."""
    ticks = {}
    while any([process.poll() is None for process in processes]):
        for process in processes:
            for stat in pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat"):
                with contextlib.suppress(OSError):
                    fields = stat.read_text().rsplit(")", 1)[1].split()
                    ticks[stat.parent.name] = int(fields[11]) + int(fields[12])  # user and system
        time.sleep(0.1)
    first = sum(ticks.pop(str(process.pid), 0) for process in processes)
    return sum(ticks.values()) / max(1, first + sum(ticks.values()))


def bench(binary, config, overrides, steps, folder):
    """The traces of both ranks, the figures of the run, and the transport's share of the processor time."""
    ranks = []
    for rank in range(2):
        environment = os.environ | {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT + 1), "TORCHELASTIC_RUN_ID": "overlap"}
        command = in_host(rank, binary, "bench", config, *overrides, "fsdp.backend=gloo", "--steps", str(steps),
                          "--json", "--trace", str(folder / "trace-{rank}.json"))
        log = open(folder / f"rank{rank}.txt", "w+", encoding="utf-8")
        ranks.append((subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True), log))
    share = transport_share([rank for rank, _ in ranks])
    outputs = [rank.communicate()[0] for rank, _ in ranks]
    for rank, log in ranks:
        if rank.returncode != 0:
            log.seek(0)
            sys.exit(log.read())
    traces = [json.loads((folder / f"trace-{rank}.json").read_text()) for rank in range(2)]
    return traces, json.loads(outputs[0]), share


class Action:
    """What the executor or the training loop did; times in ms."""

    def __init__(self, event, begin_ms):
        self.kind = event["cat"]
        self.collective = (self.kind.split()[-1], event["name"].removeprefix(self.kind).strip())
        self.start = begin_ms + event["ts"] * MS
        self.duration = event["dur"] * MS
        self.bytes = event.get("args", {}).get("bytes", 0)

    def starts(self):
        return self.kind.startswith("start")

    def awaits(self):
        return self.kind.startswith("await")


def actions_of(trace):
    """Those of one rank, in order, and when its step began."""
    begin_ms = trace["otherData"]["begin_ns"] * 1e-6
    actions = [Action(event, begin_ms) for event in trace["traceEvents"] if event["ph"] == "X" and event["tid"] == 1]
    return sorted(actions, key=lambda action: action.start), begin_ms


class Player:
    """One rank in the replay: walks its actions up to the next one that needs to know of a transfer."""

    def __init__(self, actions, begin_ms):
        self.actions = iter(actions)
        self.now = self.last_end = begin_ms
        self.waited = 0.0
        self.started = {}  # when, by collective
        self.pending = next(self.actions, None)

    def advance(self, arrivals):
        """As far as the arrivals known so far allow; whether there is more."""
        while self.pending:
            action = self.pending
            if action.awaits() and action.collective in self.started and action.collective not in arrivals:
                return True
            self.now += max(0.0, action.start - self.last_end)  # computation, as it was
            self.last_end = action.start + action.duration
            if action.awaits():
                ready = arrivals.pop_for(self, action.collective, self.now)
                self.waited += max(0.0, ready - self.now)
                self.now = max(self.now, ready)
            else:
                self.now += action.duration
                if action.starts():
                    self.started[action.collective] = (self.now, action.bytes)
            self.pending = next(self.actions, None)
        return False


class Link:
    """Transfers in the order in which both ranks came to them."""

    def __init__(self, bytes_per_ms):
        self.bytes_per_ms = bytes_per_ms
        self.free = 0.0
        self.arrivals = {}

    def __contains__(self, collective):
        return collective in self.arrivals

    def pop_for(self, player, collective, now):
        """When a collective is through, for one of the two ranks that wait for it."""
        if collective not in player.started:
            return now
        del player.started[collective]
        ready, waiting = self.arrivals[collective]
        if waiting == 1:
            del self.arrivals[collective]
        else:
            self.arrivals[collective] = (ready, 1)
        return ready

    def carry(self, players):
        """The next transfer that both ranks started."""
        both = [(max(player.started[key][0] for player in players), key) for key in players[0].started
                if key in players[1].started and key not in self.arrivals]
        if not both:
            return False
        ready, key = min(both)
        rounds = 2 if key[0] == "all-reduce" else 1
        half = players[0].started[key][1] / 2  # of two ranks, each has the other's half to get
        self.free = max(self.free, ready) + rounds * half / self.bytes_per_ms
        self.arrivals[key] = (self.free, 2)
        return True


def unavoidable(traces, bytes_per_ms):
    """Milliseconds that each rank waits on an ideal link."""
    players = [Player(*actions_of(trace)) for trace in traces]
    link = Link(bytes_per_ms)
    while any([player.advance(link) for player in players]):
        if not link.carry(players):
            sys.exit("the traces do not belong together")
    return [player.waited for player in players]


def waited(traces):
    return [sum(action.duration for action in actions_of(trace)[0] if action.awaits()) for trace in traces]


def main():
    if sys.argv[1:2] == ["--receive"]:
        return receive_stream()
    if sys.argv[1:2] == ["--send"]:
        return send_stream()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--binary", default="build/bin/accordion")
    parser.add_argument("--gbit", type=float, nargs="+", default=[1.0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_intermixed_args()
    print(f"{'Gbit/s':>7} {'stream MB/s':>12} {'step ms':>9} {'waited ms':>10} {'unavoidable':>12} {'ratio':>6}"
          f" {'transport':>10}")
    for gbit in options.gbit:
        with two_hosts(gbit), tempfile.TemporaryDirectory() as folder:
            rate = stream_rate()
            for _ in range(options.repeats):
                traces, figures, share = bench(os.path.abspath(options.binary), options.config, options.overrides,
                                               options.steps, pathlib.Path(folder))
                ours, ideal = sum(waited(traces)) / 2, sum(unavoidable(traces, rate * 1e-3)) / 2
                print(f"{gbit:7g} {rate * 1e-6:12.1f} {figures['step_ms']['median']:9.0f} {ours:10.0f} {ideal:12.0f}"
                      f" {ours / ideal if ideal else float('nan'):6.2f} {100 * share:8.1f} %", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
