"""Import of Marian's translation models, as Hugging Face's folders hold them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from t2t_torch.errors import DataError, UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop import huggingface, translation
from t2t_torch.interop.fairseq import stack_names
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side, Vocabulary

_MUST_BE: dict[str, tuple[Any, ...]] = {
    "add_bias_logits": (False,),
    "extra_pos_embeddings": (0,),
    "num_hidden_layers_shared": (False,),
    "static_position_embeddings": (True,),
}


_SIZES = {
    "d_model": "hidden_size",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "encoder_ffn_dim": "filter_size",
    "decoder_ffn_dim": "filter_size",
}
"""Our names of sizes in a configuration."""

OPTIONS = frozenset("decode_hparams problem subwords".split())


def detect(source: Path) -> bool:
    """Returns True if a folder has a model of Marian as Hugging Face saves it."""
    return huggingface.model_type(source) == "marian"


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns the run of a MarianMTModel.

    Args:
      source: folder of `save_pretrained`.
      settings: settings of the import.

    Raises:
      CheckpointError: the weights are damaged, or not those of the configuration.
      DataError: the configuration or a vocabulary is missing or damaged.
      HParamsError: the model computes something that this library does not.
      UsageError: the folder has a model of another kind.
    """
    config = huggingface.read_json(source / "config.json")
    if (kind := config.get("model_type")) != "marian":
        raise UsageError(
            f"{source / 'config.json'} is of a {kind!r}, not of a Marian, such as "
            "Helsinki-NLP/opus-mt-en-de: leave --from out."
        )
    translation.refuse("Marian", translation.forbidden(config, _MUST_BE))
    path, own = source / "vocab.json", source / "target_vocab.json"
    target_path = own if own.exists() else path
    vocabularies = _vocabulary(path, config), _vocabulary(target_path, config)
    ours, hparams = _converted(huggingface.folder_tensors(source), config, vocabularies)
    translation.check_sizes("Marian", config, hparams, _SIZES)
    subwords = [source / f"{side}.spm" for side in ("source", "target")]
    named = huggingface.optional_json(source / "tokenizer_config.json")
    source_lang, target_lang = (
        str(named.get(f"{side}_lang") or side) for side in ("source", "target")
    )
    return translation.translation_run(
        "marian",
        settings,
        languages=(source_lang, target_lang),
        hparams=hparams,
        weights=ours,
        vocabularies=vocabularies,
        subwords=[path for path in subwords if path.exists()],
        decode_hparams=huggingface.generation_settings(source, config, beams=4),
    )


def _vocabulary(path: Path, config: Mapping[str, Any]) -> Vocabulary:
    tokens = huggingface.numbered_tokens(path)
    eos, pad = int(config.get("eos_token_id", 0)), int(config.get("pad_token_id", -1))
    start = int(config.get("decoder_start_token_id", pad))
    if "<unk>" not in tokens or not {pad, eos, start} <= set(range(len(tokens))):
        raise DataError(f"{path} and config.json are of different models: copy them together.")
    unknown = tokens.index("<unk>")
    return Vocabulary(tokens, pad=pad, eos=eos, unknown=unknown, silent=(unknown,), strip=True)


def _converted(
    tensors: Mapping[str, Any],
    config: Mapping[str, Any],
    vocabularies: tuple[Vocabulary, Vocabulary],
) -> tuple[dict[str, Tensor], HParams]:
    """Returns weights by our names, and hyperparameters."""
    pre_norm = bool(config.get("normalize_before"))
    names = {
        "model.shared": "shared",
        "lm_head": translation.TOP,
        "final_logits_bias": f"{translation.TOP}.bias",
        r"model\.(?:en|de)coder\.embed_positions": "",
    }
    sides = {}
    for side in translation.PLACES:
        names |= stack_names(side, rf"model\.{side}", pre_norm=pre_norm)
        sides[side] = Side(
            num_heads=int(config.get(f"{side}_attention_heads", 8)),
            activation=str(config.get("activation_function", "relu")),
            norms=translation.PRE_NORM if pre_norm else translation.POST_NORM,
            norm_epsilon=1e-5,
            pos="sinusoids",
        )
    ours = translation.by_our_names("Marian", tensors, names)
    if (shared := ours.pop("shared.weight", None)) is not None:
        for table in (translation.INPUTS, translation.TARGETS):
            ours.setdefault(f"{table}.weight", shared)
    if f"{translation.TOP}.bias" in ours:
        ours[f"{translation.TOP}.bias"] = ours[f"{translation.TOP}.bias"].reshape(-1)
    translation.order_tables("Marian", ours, vocabularies)
    written = vocabularies[1]
    return ours, translation.hparams_of(
        "Marian",
        "transformer",
        ours,
        sides,
        decoder_start_id=written.our_id(int(config.get("decoder_start_token_id", written.pad))),
        multiply_embedding_mode="sqrt_depth" if config.get("scale_embedding") else "none",
        layer_prepostprocess_dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        relu_dropout=float(config.get("activation_dropout", 0.0)),
    )
