# SPDX-License-Identifier: BSD-3-Clause
"""What is trained: a model, a batch, a number of ranks and a dtype."""
import dataclasses
import json
import pathlib
from dataclasses import dataclass, field

CONFIGS = pathlib.Path(__file__).parent.parent / "peers" / "configs"
SCALING_AXES = ("ranks", "tokens", "width", "depth", "vocabulary")


@dataclass(frozen=True)
class Cell:
    """One thing that every trainer trains in the same way."""
    shape: str  # names the model and the batch
    model: dict[str, object] = field(hash=False, compare=False)  # a Hugging Face config.json
    seq: int
    batch: int  # sequences a rank
    ranks: int = 2
    dtype: str = "fp32"

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.dtype}-{self.ranks}"

    @property
    def tokens_per_step(self) -> int:
        return self.seq * self.batch * self.ranks


def _model(name: str) -> dict[str, object]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def _small() -> Cell:
    return Cell("small", _model("small"), seq=256, batch=4)


def _tiny() -> Cell:
    """Seconds a trainer: shows that all of them run."""
    return Cell("tiny", _model("tiny"), seq=128, batch=4)


def _wide() -> Cell:
    return Cell("wide", _model("wide"), seq=128, batch=2)


SHAPES = {"tiny": _tiny, "small": _small, "wide": _wide}


def _with_model(shape: str, **keys: int) -> Cell:
    cell = _small()
    return dataclasses.replace(cell, shape=shape, model={**cell.model, **keys})


def of_width(width: int) -> Cell:
    """Heads of 64 and a hidden layer of 2.7 times the width, as in `small`."""
    heads = width // 64
    return _with_model(f"width{width}", hidden_size=width, intermediate_size=width * 43 // 16,
                       num_attention_heads=heads, num_key_value_heads=heads)


def _axis(axis: str) -> list[Cell]:
    small = _small()
    match axis:
        case "ranks":
            return [dataclasses.replace(small, ranks=n) for n in (1, 2, 4)]
        case "tokens":
            return [dataclasses.replace(small, shape=f"tokens{256 * n}", batch=n) for n in (1, 4, 16)]
        case "width":
            return [of_width(n) for n in (256, 512, 1024)]
        case "depth":
            return [_with_model(f"depth{n}", num_hidden_layers=n) for n in (4, 8, 16)]
        case "vocabulary":
            return [_with_model(f"vocabulary{n}", vocab_size=n) for n in (256, 32_768, 131_072)]
    raise ValueError(f"no such axis: {axis}")


def _each_dtype(cells: list[Cell], dtypes: list[str]) -> list[Cell]:
    return [dataclasses.replace(cell, dtype=dtype) for cell in cells for dtype in dtypes]


def shape_cells(shapes: list[str], dtypes: list[str], ranks: int) -> list[Cell]:
    cells = [dataclasses.replace(SHAPES[shape](), ranks=ranks) for shape in shapes]
    return _each_dtype(cells, dtypes)


def scaling_cells(axis: str, dtypes: list[str]) -> list[Cell]:
    """`small`, with one thing changed at a time."""
    return _each_dtype(_axis(axis), dtypes)
