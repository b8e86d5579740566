# SPDX-License-Identifier: BSD-3-Clause
"""One rank of PyTorch FSDP2 with AdamW, saved and loaded by torch.distributed.checkpoint; started by checkpoint.py.

Commands and answers are those of checkpoint_benchmark: save PATH, load PATH."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from common import load_json, reset_peak, status_mib
from llama import Llama
from torch_loop import adamw


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    states = get_state_dict(model, optimizer)
    dcp.save(dict(zip(("model", "optimizer"), states)), storage_writer=dcp.FileSystemWriter(path))  # syncs its files


def load(model: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    states = get_state_dict(model, optimizer)
    dcp.load(dict(zip(("model", "optimizer"), states)), storage_reader=dcp.FileSystemReader(path))
    set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with torch.device("meta"):
        model = Llama(load_json(sys.argv[1]))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.to_local(), std=0.02)
    optimizer = adamw(model)
    tokens = torch.arange(32).view(1, 32)
    model(tokens, tokens).backward()  # one step, for moments that are not zero
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print("{}", flush=True)  # ready
    for line in sys.stdin:
        command, path = line.split(maxsplit=1)
        dist.barrier()
        resident = status_mib("VmRSS")
        reset_peak()
        processor, start = time.process_time(), time.perf_counter()
        {"save": save, "load": load}[command](model, optimizer, path.strip())
        print(json.dumps({"seconds": time.perf_counter() - start, "processor": time.process_time() - processor,
                          "grown_mib": status_mib("VmHWM") - resident}), flush=True)
    os._exit(0)  # Gloo can abort a process at interpreter exit


if __name__ == "__main__":
    main()
