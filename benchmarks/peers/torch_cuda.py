# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch FSDP2, eager, alone on one CUDA device: the steps of gpu_benchmark. Prints one line of JSON."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from common import HYPER, load_json
from llama import Llama
from torch_loop import adamw

WARMUP_STEPS = 5


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("config")
    p.add_argument("dtype", choices=["fp32", "bf16"])
    p.add_argument("batch", type=int)
    p.add_argument("seq", type=int)
    p.add_argument("steps", type=int)
    return p.parse_args()


def sharded_model(a: argparse.Namespace) -> torch.nn.Module:
    options = {"mesh": init_device_mesh("cuda", (1,))}
    if a.dtype == "bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Llama(load_json(a.config))
    for layer in model.model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def main() -> None:
    a = arguments()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    model = sharded_model(a)
    optimizer = adamw(model)
    tokens = torch.randint(load_json(a.config)["vocab_size"], (a.batch, a.seq + 1), device="cuda")
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    ms = []
    for step in range(WARMUP_STEPS + a.steps):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), HYPER["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        torch.cuda.synchronize()
        if step >= WARMUP_STEPS:
            ms.append((time.perf_counter() - begun) * 1e3)
    print(json.dumps({"step_ms": statistics.median(ms), "loss": value,
                      "peak_mib": torch.cuda.max_memory_allocated() / 2**20}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
