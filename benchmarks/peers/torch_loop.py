# SPDX-License-Identifier: BSD-3-Clause
"""What the trainers on torch.distributed share around their steps."""
import os

import torch
import torch.distributed as dist

from common import HYPER, Meter


def adamw(model: torch.nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=HYPER["lr"], betas=(HYPER["beta1"], HYPER["beta2"]),
                             eps=HYPER["eps"], weight_decay=HYPER["weight_decay"], fused=True)


def mean_over_ranks(loss: torch.Tensor) -> float:
    loss = loss.detach().double()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def end_process(meter: Meter) -> None:
    """Writes the summary and ends this rank."""
    memory: list[dict[str, float]] = [{}] * dist.get_world_size()
    dist.all_gather_object(memory, meter.memory())
    meter.summary(memory)
    dist.barrier()
    os._exit(0)  # Gloo can abort a process at interpreter exit
