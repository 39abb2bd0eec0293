"""Small random models of Hugging Face's transformers, each saved with a tokenizer of its kind."""

from __future__ import annotations

import functools
import io

import torch

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "a tokenizer reads naïve cafés and Ünïcode",
    "numbers such as 12,345.67 and words like don't",
    "sentence pieces keep the spaces before words",
]
"""What the tokenizers are trained on."""

TEXTS = [
    "the quick fox",
    "",
    "  spaces   between\twords \n and lines ",
    "naïve CAFÉS, don't!",
    "\U0001f600 an emoji \U0001f468‍\U0001f469‍\U0001f467 of several",
    "数字 と 日本語",
    "12,345.67 = 1.234567e4",
    "the lazy dog " * 7,
    "x",
    "words\x00with\x01controls­",
]
"""Ten texts, among them long, empty and odd ones."""

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TRANSFORMER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_ENCODER = {**_TRANSFORMER, "intermediate_size": 64, "max_position_embeddings": 150}
_DECODER = {**_TRANSFORMER, "num_key_value_heads": 2, "intermediate_size": 64}
_BOTH = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_position_embeddings": 150,
}  # fmt: skip

FAMILIES = {
    "bert": ("wordpiece", _ENCODER),
    "distilbert": (
        "wordpiece", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
                      "max_position_embeddings": 150},
    ),
    "electra": ("wordpiece", {**_ENCODER, "embedding_size": 16}),
    "roberta": ("bytes", {**_ENCODER, "max_position_embeddings": 152}),
    "xlm-roberta": ("unigram", {**_ENCODER, "max_position_embeddings": 152}),
    "deberta-v2": (
        "composed", {**_ENCODER, "relative_attention": True, "position_buckets": 16,
                    "norm_rel_ebd": "layer_norm", "share_att_key": True,
                    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
                    "type_vocab_size": 0},
    ),
    "modernbert": ("bytes", {**_ENCODER, "local_attention": 8}),
    "gpt2": ("plain_bytes", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 150}),
    "llama": ("fallback", _DECODER),
    "qwen2": ("split_bytes", _DECODER),
    "qwen3": ("split_bytes", {**_DECODER, "head_dim": 8}),
    "t5": (
        "ended", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                  "feed_forward_proj": "gated-gelu"},
    ),
    "bart": ("bytes", _BOTH),
}  # fmt: skip
"""For each family its kind of tokenizer, and the sizes of its configuration."""

ENCODERS = ("bert", "distilbert", "electra", "roberta", "xlm-roberta", "deberta-v2", "modernbert")
LANGUAGE_MODELS = ("gpt2", "llama", "qwen2", "qwen3")
SEQ2SEQ = ("t5", "bart")


@functools.cache
def characters_of_sentencepiece():
    """Returns its map of characters `nmt_nfkc`, as tokenizers of T5 and XLM-R have it."""
    from sentencepiece import SentencePieceTrainer, sentencepiece_model_pb2

    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=written, vocab_size=60, minloglevel=2
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def tokenizer_of(kind):
    """Returns a tokenizer of about 300 tokens."""
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    if kind == "wordpiece":
        names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=list(names.values()))
    elif kind in ("unigram", "ended", "composed"):
        names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.Precompiled(characters_of_sentencepiece())
        splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        if kind == "composed":
            spaces = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
            parts = [spaces, normalizers.NFC(), normalizers.Strip(left=False, right=True)]
            made.normalizer, splits = normalizers.Sequence(parts), splits[1:]
        made.pre_tokenizer = pre_tokenizers.Sequence(splits)
        made.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=300, special_tokens=list(names.values()), unk_token="<unk>"
        )
    elif kind == "fallback":
        names = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        made.decoder = decoders.Sequence([
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ])  # fmt: skip
        bytes_ = [f"<0x{n:02X}>" for n in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[*names.values(), *bytes_])
    else:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if kind == "split_bytes":
            parts = [
                pre_tokenizers.Split(Regex(_QWEN), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
            made.normalizer = normalizers.NFC()
            made.pre_tokenizer = pre_tokenizers.Sequence(parts)
        made.decoder = decoders.ByteLevel()
        names = {"eos": "<|end|>"}
        if kind == "bytes":
            names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=330, special_tokens=list(names.values()), initial_alphabet=alphabet
        )
    made.train_from_iterator(SENTENCES, trainer)
    if kind == "fallback":  # its pieces are parts of words
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    number = made.token_to_id
    if kind == "wordpiece":
        made.post_processor = processors.BertProcessing(
            ("[SEP]", number("[SEP]")), ("[CLS]", number("[CLS]"))
        )
    elif kind == "bytes":
        made.post_processor = processors.RobertaProcessing(
            ("</s>", number("</s>")), ("<s>", number("<s>")), add_prefix_space=False
        )
    elif "bytes" not in kind:
        template = {
            "unigram": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
            "composed": ("<s> $A </s>", "<s> $A </s> $B </s>"),
            "ended": ("$A </s>", "$A </s> $B </s>"),
            "fallback": ("<s> $A", "<s> $A $B"),
        }[kind]
        special = [(name, number(name)) for name in ("<s>", "</s>")]
        made.post_processor = processors.TemplateProcessing(*template, special)
    if kind in ("bytes", "unigram", "composed"):
        names |= {"cls": "<s>", "sep": "</s>"}
    types = ["token_type_ids"] if kind == "wordpiece" else []
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_input_names=["input_ids", "attention_mask", *types],
        **{f"{name}_token": token for name, token in names.items()},
    )


def save_model(family, folder, auto="AutoModel", seed=0, **more):
    """Saves a random model and its tokenizer; returns both."""
    import transformers

    kind, sizes = FAMILIES[family]
    tokenizer = tokenizer_of(kind)
    special = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    special = {name: number for name, number in special.items() if number is not None}
    if "gpt2" in family or "qwen" in family:
        special["bos_token_id"] = special["eos_token_id"]
    if family == "t5":
        special["decoder_start_token_id"] = special["pad_token_id"]
    if family == "bart":
        special["decoder_start_token_id"] = special["eos_token_id"]
    if family == "modernbert":
        special |= {
            "cls_token_id": special["bos_token_id"],
            "sep_token_id": special["eos_token_id"],
        }
    config = transformers.AutoConfig.for_model(
        family, vocab_size=len(tokenizer) + 3, **{**sizes, **special, **more}
    )
    torch.manual_seed(seed)
    model = getattr(transformers, auto).from_config(config).eval()
    scale = 2.0 if family == "t5" else 4.0  # large enough that no two texts are as probable
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)
            else:
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, transformers.AutoTokenizer.from_pretrained(folder)
