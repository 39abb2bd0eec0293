"""The data of the benchmarks: Multi30k, and the architecture that both sides have."""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry

if TYPE_CHECKING:
    from t2t_torch.hparams.transformer import TransformerHParams
    from t2t_torch.train.problem_task import ProblemTask

PROBLEM = "translate_multi30k_ende"

# Post-norm, no embedding of the target space and this epsilon: then a MarianMTModel with the same
# weights is the same function (marian.py).
ARCHITECTURE = {
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "use_target_space_embedding": False,
    "norm_epsilon": 1e-5,
    "num_hidden_layers": 3,
    "hidden_size": 256,
    "filter_size": 1024,
    "num_heads": 4,
    "shared_embedding_and_softmax_weights": True,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.1,
    "relu_dropout": 0.1,
    "label_smoothing": 0.1,
    "batch_size": 4096,
}


def argument_parser(text: str) -> argparse.ArgumentParser:
    """Returns a parser of what all benchmarks on this data are told."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--data_dir", type=Path, default=temporary / "t2t_benchmarks")
    parser.add_argument(
        "--tmp_dir", type=Path, default=temporary / "t2t_datagen", help="where the raw files are"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def make_data(data_dir: Path, tmp_dir: Path) -> None:
    """Generates the data, if it is not there."""
    from t2t_torch.bin.commands import datagen

    with contextlib.redirect_stdout(io.StringIO()):
        code = datagen.main(
            [f"--problem={PROBLEM}", f"--data_dir={data_dir}", f"--tmp_dir={tmp_dir}"]
        )
    if code:
        raise SystemExit(code)


def hparams(**changes: object) -> TransformerHParams:
    """Returns `transformer_multi30k` with the benchmarks' architecture, and changes to it."""
    return registry.hparams("transformer_multi30k").replace(**{**ARCHITECTURE, **changes})


def task(data_dir: Path, chosen: TransformerHParams) -> ProblemTask:
    """Returns what the trainer trains."""
    from t2t_torch.train.problem_task import ProblemTask

    return ProblemTask(
        registry.problem(PROBLEM),
        registry.model("transformer"),
        chosen,
        data_dir=data_dir,
        vocab_dir=data_dir,
    )
