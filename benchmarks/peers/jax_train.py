# SPDX-License-Identifier: BSD-3-Clause
"""JAX on CPUs: the same Llama, sharded by NamedSharding over host devices of one process, with optax's AdamW."""
import os

from common import HYPER as H, Meter, batch, load_json, parser

p = parser(__doc__)
p.add_argument("--ranks", type=int, default=2, help="host devices, and cores")
p.add_argument("--zero", type=int, choices=[2, 3], default=3, help="3: gathered weights are not kept for backward")
a = p.parse_args()
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={a.ranks}"
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:a.ranks])
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from safetensors import safe_open

c, data, world = load_json(a.config), np.fromfile(a.data, np.uint8), a.ranks
mesh = Mesh(np.array(jax.devices()), ("fsdp",))
shard, rep = NamedSharding(mesh, P("fsdp")), NamedSharding(mesh, P())
ct = jnp.bfloat16 if a.dtype == "bf16" else jnp.float32
nh, nkv, hd = c["num_attention_heads"], c["num_key_value_heads"], c["hidden_size"] // c["num_attention_heads"]
pin = jax.lax.with_sharding_constraint
full = lambda w: pin(w.astype(ct), rep)            # the all-gather, of the compute-type copy
lin = lambda x, w: pin(jax.lax.dot_general(x, full(w), (((x.ndim - 1,), (1,)), ((), ()))), shard)   # x @ w.T without a transpose


def norm(x, w):
    f = x.astype(jnp.float32)
    return (f * jax.lax.rsqrt((f * f).mean(-1, keepdims=True) + c["rms_norm_eps"])).astype(ct) * full(w)


def layer(w, x, cos, sin):
    b, t, _ = x.shape
    h = norm(x, w["input_layernorm"])
    q, k, v = (lin(h, w[f"self_attn.{m}_proj"]).reshape(b, t, n, hd) for m, n in (("q", nh), ("k", nkv), ("v", nkv)))
    q, k = (z * cos + jnp.concatenate((-z[..., hd // 2:], z[..., :hd // 2]), -1) * sin for z in (q, k))
    x = x + lin(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, nh * hd), w["self_attn.o_proj"])
    h = norm(x, w["post_attention_layernorm"])
    return x + lin(jax.nn.silu(lin(h, w["mlp.gate_proj"])) * lin(h, w["mlp.up_proj"]), w["mlp.down_proj"])


if a.zero == 3:   # keep every residual but the gathered weights: backward gathers them again
    layer = jax.checkpoint(layer, policy=lambda prim, *_, **__: prim.name != "sharding_constraint")


def loss_fn(w, x, y):
    inv = c["rope_theta"] ** (-jnp.arange(0, hd, 2, dtype=jnp.float32) / hd)
    ang = jnp.tile(jnp.outer(jnp.arange(x.shape[1], dtype=jnp.float32), inv), 2)[None, :, None]
    cos, sin = jnp.cos(ang).astype(ct), jnp.sin(ang).astype(ct)
    h = pin(full(w["model.embed_tokens"])[x], shard)
    for n in range(c["num_hidden_layers"]):
        pre = f"model.layers.{n}."
        h = pin(layer({k[len(pre):]: v for k, v in w.items() if k.startswith(pre)}, h, cos, sin), shard)
    logits = lin(norm(h, w["model.norm"]), w["lm_head"]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


opt = optax.chain(optax.clip_by_global_norm(H["clip"]),
                  optax.adamw(H["lr"], b1=H["beta1"], b2=H["beta2"], eps=H["eps"], weight_decay=H["weight_decay"]))


def step(w, st, x, y):
    loss, g = jax.value_and_grad(loss_fn)(w, x, y)
    g = jax.tree.map(lambda t: pin(t, shard), g)
    up, st = opt.update(g, st, w)
    return jax.tree.map(lambda t: pin(t, shard), optax.apply_updates(w, up)), st, loss, optax.global_norm(g)


with safe_open(a.init, "np") as f:
    w = {k.removesuffix(".weight"): jax.device_put(f.get_tensor(k), shard) for k in f.keys()}
st = jax.jit(opt.init, out_shardings=jax.tree.map(lambda t: shard if t.ndim else rep, jax.eval_shape(opt.init, w)))(w)


def feed(s):
    parts = [batch(data, s, r, world, a.batch, a.seq) for r in range(world)]
    return [jax.device_put(np.concatenate([q[i] for q in parts]).astype(np.int32), shard) for i in (0, 1)]


run = jax.jit(step, donate_argnums=(0, 1))
meter = Meter(a, 0, world)
for s in range(a.steps):
    meter.begin()
    w, st, loss, norm = run(w, st, *feed(s))
    jax.block_until_ready((w, st, loss, norm))
    meter.end()
    meter.step(s, float(loss), float(norm))
meter.summary([meter.memory()])
