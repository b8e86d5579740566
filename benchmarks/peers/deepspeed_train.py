# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed's ZeRO-2 or 3 on CPUs over Gloo, with the fused AdamW of torch.optim. Start with torchrun."""
import os

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import numpy as np
import torch
import torch.distributed as dist

from common import HYPER, Meter, batch, load_json, parser
from llama import Llama, load_init
from torch_loop import adamw, end_process, mean_over_ranks


def zero_options(stage: int, layer_numel: int) -> dict[str, object]:
    """Buckets of about one layer, as others have; at most two layers whole, none from forward to backward."""
    options: dict[str, object] = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": layer_numel,
                                  "allgather_bucket_size": layer_numel}
    if stage == 3:
        options.update(stage3_prefetch_bucket_size=layer_numel, stage3_max_live_parameters=2 * layer_numel,
                       stage3_max_reuse_distance=0, stage3_param_persistence_threshold=10000)
    return options


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--zero", type=int, choices=[2, 3], default=3)
    a = p.parse_args()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    torch.set_num_threads(a.threads)
    rank, world = dist.get_rank(), dist.get_world_size()
    data = np.fromfile(a.data, np.uint8)
    model = Llama(load_json(a.config))
    load_init(model, a.init)
    optimizer = adamw(model)
    layer_numel = sum(q.numel() for q in model.model.layers[0].parameters())
    config = {"train_micro_batch_size_per_gpu": a.batch, "gradient_accumulation_steps": 1,
              "gradient_clipping": HYPER["clip"], "zero_optimization": zero_options(a.zero, layer_numel),
              "bf16": {"enabled": a.dtype == "bf16"}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    meter = Meter(a, rank, world)
    for step in range(a.steps):
        dist.barrier()
        meter.begin()
        x, y = (torch.from_numpy(z) for z in batch(data, step, rank, world, a.batch, a.seq))
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        meter.end()
        norm = engine.get_global_grad_norm()
        meter.step(step, mean_over_ranks(loss), None if norm is None else float(norm))
    end_process(meter)


if __name__ == "__main__":
    main()
