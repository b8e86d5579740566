# SPDX-License-Identifier: BSD-3-Clause
"""One run of `accordion bench` on fresh weights, for the benchmarks of predictions."""
import argparse
import json
import pathlib
import subprocess

from .cells import Cell


def bench(a: argparse.Namespace, work: pathlib.Path, cell: Cell, keys: dict[str, object],
          *flags: object) -> dict[str, object]:
    """What it printed; `a` has accordion, data and ranks, `work` takes the model's file and the tokens."""
    model = work / f"{cell.shape}.json"
    model.write_text(json.dumps(cell.model))
    config = work / "empty.toml"
    config.write_text("")
    keys = {"model.config": model, "data.path": a.data, "data.cache_dir": work / "cache", "data.seq_len": cell.seq,
            "train.batch_size": cell.batch, "train.threads": 1, **keys}
    command = [a.accordion, "bench", config, *(f"{k}={v}" for k, v in keys.items()), "--nproc", str(a.ranks), "--json",
               *map(str, flags)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
