#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tokens per second of `accordion train` beside PyTorch FSDP2 on the same model, bytes, weights and steps.

    python3 benchmarks/compare.py --work DIR [--python DIR/venv/bin/python] [--runs small-fp32,wide-bf16] [--repeats 3]

Runs both trainers in turn, so that a change of the machine's load meets both, on 2 ranks with one thread each, and
prints the median over repeats and its ratio. PYTHON needs torch, numpy and safetensors. Losses of the two must agree
before the speed counts: the largest relative difference is in the table.
"""
import argparse, json, os, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {"small": dict(seq=256, batch=4), "wide": dict(seq=128, batch=2)}
RANKS = 2


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True, help="folder for weights, text and logs")
    p.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    p.add_argument("--accordion", default=os.path.join(HERE, "..", "build", "bin", "accordion"))
    p.add_argument("--runs", default="small-fp32,small-bf16,wide-fp32,wide-bf16")
    p.add_argument("--modes", default="fsdp2", help="of peers/torch_train.py: fsdp2, ddp, local, …")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--data", default=os.path.join(HERE, "..", "tests", "data", "parity", "data.txt"))
    return p.parse_args()


def read_log(path):
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    losses = [line["loss"] for line in lines if "loss" in line and "step" in line]
    return next(line for line in lines if line.get("summary")), losses


def run(command, **environment):
    done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1", **environment),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}")


def weights(a, shape):
    path = os.path.join(a.work, f"init-{shape}.safetensors")
    if not os.path.exists(path):
        run([a.python, os.path.join(HERE, "peers", "make_init.py"), "--config", config(shape), "--out", path])
    return path


def config(shape):
    return os.path.join(HERE, "peers", "configs", shape + ".json")


def run_peer(a, mode, shape, dtype, log):
    s = SHAPES[shape]
    run([a.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", "29511",
         os.path.join(HERE, "peers", "torch_train.py"), "--mode", mode, "--config", config(shape),
         "--init", weights(a, shape), "--data", a.data, "--steps", str(a.steps), "--batch", str(s["batch"]),
         "--seq", str(s["seq"]), "--dtype", dtype, "--out", log], GLOO_SOCKET_IFNAME="lo")
    return read_log(log)


def run_accordion(a, shape, dtype, folder):
    s = SHAPES[shape]
    run(["rm", "-rf", folder])
    keys = {
        "run.dir": folder, "model.config": config(shape), "model.init": weights(a, shape), "data.path": a.data,
        "data.order": "strided", "data.validation_fraction": 0.0, "data.seq_len": s["seq"], "train.steps": a.steps,
        "train.batch_size": s["batch"], "train.threads": 1, "optimizer.lr": 3e-4, "optimizer.betas": "[0.9, 0.95]",
        "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1, "optimizer.decay_norms": "true",
        "optimizer.clip_norm": 1.0, "schedule.name": "constant", "eval.every": 0, "fsdp.param_dtype": dtype,
    }
    toml = folder + ".toml"
    with open(toml, "w") as f:
        f.write("# Every key is given on the command line.\n")
    run([a.accordion, "train", toml, *(f"{k}={v}" for k, v in keys.items()), "--nproc", str(RANKS)])
    return read_log(os.path.join(folder, "metrics.jsonl"))


def deviation(losses, reference):
    return max(abs(x - y) / abs(y) for x, y in zip(losses, reference, strict=True))


def main():
    a = arguments()
    os.makedirs(a.work, exist_ok=True)
    modes = a.modes.split(",")
    print(f"{'run':12} {'trainer':12} {'tokens/s':>9} {'least':>8} {'most':>8} {'accordion is':>13} {'loss differs':>13}")
    for name in a.runs.split(","):
        shape, dtype = name.split("-")
        speeds, losses = {m: [] for m in ["accordion", *modes]}, {}
        for repeat in range(a.repeats):
            for m in speeds:
                log = os.path.join(a.work, f"{name}-{m}-{repeat}")
                got, curve = run_accordion(a, shape, dtype, log) if m == "accordion" else \
                    run_peer(a, m, shape, dtype, log + ".jsonl")
                speeds[m].append(got["tokens_per_s"])
                losses[m] = curve
        ours = statistics.median(speeds["accordion"])
        for m, s in speeds.items():
            print(f"{name:12} {m:12} {statistics.median(s):9.0f} {min(s):8.0f} {max(s):8.0f} "
                  f"{ours / statistics.median(s):12.2f}x {deviation(losses['accordion'], losses[m]):13.1e}", flush=True)


if __name__ == "__main__":
    main()
