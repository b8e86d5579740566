# Accordion against transformers, run by hand:
#
#   pip install torch transformers sentencepiece protobuf
#   ninja -C build accordion_cli transformers_parity
#   python3 tests/models/transformers_parity.py build
#   python3 tests/models/transformers_parity.py build --fixtures
#
# Prints, for a plain, a grouped-query and a tied model, how far the logits of
# transformers are from Accordion's on an exported folder, and how far the loss
# of Accordion's first training step is from that of transformers on a folder
# that transformers saved. Exits with 1 where one is further than it may be.
# --fixtures rewrites tests/data/transformers instead.
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
import sentencepiece
import torch
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          Qwen2Config)

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = ROOT / "tests/data/parity/data.txt"
TOLERANCE = 1e-5
failures = 0


def report(what, difference, tolerance=TOLERANCE):
    global failures
    failures += not difference <= tolerance
    print(f"{what:58} {difference:.2e}{'' if difference <= tolerance else '  TOO FAR'}")


def models():
    common = dict(vocab_size=256, hidden_size=128, intermediate_size=344, num_hidden_layers=4,
                  num_attention_heads=4, max_position_embeddings=1024, rms_norm_eps=1e-5)
    yield "plain", LlamaConfig(num_key_value_heads=4, **common)
    yield "gqa", LlamaConfig(num_key_value_heads=2, **common)
    yield "tied", LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, **common)
    yield "head_dim and biases", LlamaConfig(num_key_value_heads=2, head_dim=48, attention_bias=True,
                                             mlp_bias=True, rope_theta=5e5, **common)
    yield "Mistral's window", MistralConfig(num_key_value_heads=2, sliding_window=50, **common)
    yield "Qwen2's windows", Qwen2Config(num_key_value_heads=2, use_sliding_window=True, sliding_window=50,
                                         max_window_layers=1, **common)


def fresh(config):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    # Large enough that logits differ, biases and norms that are not neutral.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def call(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def accordion_logits(build, folder, tokens, work):
    (work / "tokens").write_bytes(tokens.numpy().tobytes())
    call(build / "bin/transformers_parity", "logits", folder, work / "tokens", tokens.shape[0], work / "logits")
    return torch.from_numpy(numpy.fromfile(work / "logits", numpy.float32).reshape(*tokens.shape, -1))


def checkpoint_of(build, model, work):
    model.save_pretrained(work / "source")
    call(build / "bin/transformers_parity", "checkpoint", work / "source", work / "source/config.json",
         work / "run/checkpoints/step-00000007")
    return work / "run"


def check_export(build, name, config, work):
    run = checkpoint_of(build, fresh(config), work)
    tokens = torch.randint(config.vocab_size, (3, 200), generator=torch.Generator().manual_seed(2))
    for dtype in ("fp32", "bf16", "fp16"):
        out = work / dtype
        call(build / "bin/accordion", "export", run, "--to", out, "--dtype", dtype, "--max-shard-bytes", 1_000_000)
        loaded, info = AutoModelForCausalLM.from_pretrained(out, dtype="auto", output_loading_info=True)
        assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
        assert str(loaded.dtype) == {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}[dtype]
        # Both compute in fp32, from the weights in the files.
        with torch.no_grad():
            expected = loaded.float().eval()(tokens).logits
        difference = (accordion_logits(build, out, tokens, work) - expected).abs().max().item()
        report(f"{name}: logits from an export in {dtype}", difference)
    if config.model_type != "qwen2":  # of which transformers chooses the class itself, with a normaliser
        check_bytes(AutoTokenizer.from_pretrained(work / "fp32"))


def check_bytes(tokenizer):
    for text in ("", "Hello,  world!\n", " naïve 漢字 😀 \u200d", "".join(map(chr, range(1, 0x500)))):
        tokens = tokenizer(text)["input_ids"]
        assert tokens == list(text.encode()), text
        assert tokenizer.decode(tokens) == text, text


def check_sentence_piece(build, work):
    llama = dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                 remove_extra_whitespaces=False, split_digits=True)
    text = TEXT.read_text()
    run = checkpoint_of(build, fresh(LlamaConfig(vocab_size=600, hidden_size=8, intermediate_size=8,
                                                 num_hidden_layers=1, num_attention_heads=1)), work)
    for name, flags in {"like Llama": llama, "bpe": dict(model_type="bpe"), "unigram": {},
                        "no bos": dict(model_type="bpe", bos_id=-1)}.items():
        sentencepiece.SentencePieceTrainer.train(input=str(TEXT), model_prefix=str(work / "pieces"), vocab_size=600,
                                                 minloglevel=3, **flags)
        shutil.rmtree(work / "out", ignore_errors=True)
        call(build / "bin/accordion", "export", run, "--to", work / "out", "--tokenizer", work / "pieces.model")
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(work / "pieces.model"))
        tokenizer = AutoTokenizer.from_pretrained(work / "out")
        wrong = 0
        for sample in ("Hello, two  spaces", "café\n\n  x ", text[1000:3000], text[50000:53000]):
            bos = [pieces.bos_id()] if pieces.bos_id() >= 0 else []
            wrong += tokenizer(sample)["input_ids"] != bos + pieces.encode(sample)
        report(f"tokenizer, {name}: texts encoded otherwise", wrong, 0)


def check_training(build, name, config, work):
    data = torch.tensor(list(TEXT.read_bytes()[:8 * 128 + 1]))
    for dtype, shard in (("float32", "5GB"), ("bfloat16", "300KB"), ("float16", "300KB")):
        saved = work / dtype
        fresh(config).to(getattr(torch, dtype)).save_pretrained(saved, max_shard_size=shard)
        model = LlamaForCausalLM.from_pretrained(saved, dtype=torch.float32).eval()
        with torch.no_grad():
            logits = model(data[:-1].view(8, 128)).logits
            expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data[1:]).item()
        run = work / f"run-{dtype}"
        (work / "empty.toml").touch()
        call(build / "bin/accordion", "train", work / "empty.toml", "--nproc", 2, f"model.config={saved}", f"model.init={saved}",
             f"data.path={TEXT}", "data.order=strided", "data.seq_len=128", "train.batch_size=4", "train.steps=1",
             "train.threads=1", f"run.dir={run}")
        got = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["loss"]
        report(f"{name}: first loss from transformers' {dtype}", abs(got - expected))


def write_fixtures():
    common = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                  max_position_embeddings=64)
    tokens = torch.arange(48).mul(7).add(3).remainder(61).view(2, 24)
    for name, dtype, shard, config in (
            ("plain-fp32", "float32", "5GB", LlamaConfig(**common)),
            ("gqa-bf16-sharded", "bfloat16", "6KB", LlamaConfig(num_key_value_heads=2, **common)),
            ("tied-fp16", "float16", "5GB", LlamaConfig(num_key_value_heads=1, tie_word_embeddings=True, **common))):
        folder = ROOT / "tests/data/transformers" / name
        shutil.rmtree(folder, ignore_errors=True)
        fresh(config).to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
        (folder / "generation_config.json").unlink()
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()
        (folder / "expected.json").write_text(json.dumps({"loss": loss}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--fixtures", action="store_true")
    flags = parser.parse_args()
    if flags.fixtures:
        return write_fixtures()
    for check in (check_export, check_training):
        for name, config in models():
            with tempfile.TemporaryDirectory() as work:
                check(flags.build.resolve(), name, config, pathlib.Path(work))
    with tempfile.TemporaryDirectory() as work:
        check_sentence_piece(flags.build.resolve(), pathlib.Path(work))
    sys.exit(1 if failures else 0)


main()
