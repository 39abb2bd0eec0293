"""Writes tiny checkpoints of other libraries in unlike configurations, with their outputs.

Run with the Python of the library, which need not have this package:

    python make_unlike.py LIBRARY FOLDER [NAME ...]

Weights are random; vocabularies have 24 words; `expected.npz` and `expected.json` are what the
library computes of `SOURCES` and `TARGETS`: logits with teacher forcing, and the n-best list of a
beam of four, of at most ten words.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

WORDS = [f"w{n}" for n in range(20)]
SOURCES = ["w1 w2 w3 w4", "w5", "w7 w7 w19 w0 w11 w12 w3", "w3 unseen w8"]
TARGETS = ["w2 w4 w4", "w9 w1 w0 w13 w6 w17", "w5", "w10 w11"]
BEAM, LONGEST = 4, 10

FAIRSEQ = {
    "heads": "--encoder-attention-heads 2 --decoder-attention-heads 4",
    "ffn": "--encoder-ffn-embed-dim 24 --decoder-ffn-embed-dim 40 --activation-fn gelu",
    "norms": "--encoder-normalize-before --activation-fn gelu_accurate",
    "norms_back": "--decoder-normalize-before --layernorm-embedding",
    "learned": "--encoder-learned-pos --activation-fn tanh --max-source-positions 20",
    "learned_back": "--decoder-learned-pos --max-target-positions 30 --no-scale-embedding",
    "widths": "--encoder-embed-dim 32 --encoder-attention-heads 4",
    "no_final_norm": "--encoder-normalize-before --decoder-normalize-before"
    " --no-decoder-final-norm",
    "layers": "--encoder-layers 3 --decoder-layers 1 --share-decoder-input-output-embed"
    " --activation-fn linear",
    "everything": "--encoder-embed-dim 32 --encoder-attention-heads 8 --encoder-ffn-embed-dim 12"
    " --encoder-layers 1 --decoder-layers 3 --encoder-normalize-before --decoder-learned-pos"
    " --layernorm-embedding --share-decoder-input-output-embed --activation-fn gelu_fast",
}
OPENNMT = {
    "rotary": "-max_relative_positions -1",
    "rotary_halves": "-max_relative_positions -1 -rotary_interleave false -num_kv 2",
    "alibi": "-max_relative_positions -2 -layer_norm rms",
    "gated": "-position_encoding -pos_ffn_activation_fn gated-gelu -add_ffnbias",
    "modern": "-max_relative_positions -1 -layer_norm rms -pos_ffn_activation_fn silu -num_kv 1"
    " -multiquery -share_decoder_embeddings",
    "layers": "-position_encoding -position_encoding_type SinusoidalConcat -enc_layers 3"
    " -dec_layers 1 -add_qkvbias -norm_eps 1e-5",
    "lstm_mlp": "-encoder_type brnn -decoder_type rnn -rnn_type LSTM -global_attention mlp",
    "lstm_forward": "-encoder_type rnn -decoder_type rnn -rnn_type LSTM -global_attention dot"
    " -word_vec_size 12",
    "lstm_no_feed": "-encoder_type brnn -decoder_type rnn -rnn_type LSTM -input_feed 0",
    "lstm_mlp_no_feed": "-encoder_type rnn -decoder_type rnn -rnn_type LSTM -input_feed 0"
    " -global_attention mlp -layers 1",
}
SOCKEYE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "heads": ({"attention_heads": 2}, {"attention_heads": 8}),
    "ffn": ({"feed_forward_num_hidden": 24}, {"feed_forward_num_hidden": 40, "use_glu": True}),
    "norms": ({}, {"preprocess_sequence": "", "postprocess_sequence": "drn"}),
    "norms_back": ({"preprocess_sequence": "", "postprocess_sequence": "rn"}, {}),
    "positions": ({"positional_embedding_type": "learned"}, {}),
    "positions_back": ({}, {"positional_embedding_type": "learned"}),
    "widths": ({"model_size": 32, "attention_heads": 8}, {}),
    "length_task": ({}, {}),
    "activations": ({"act_type": "gelu", "use_glu": True}, {"act_type": "swish1"}),
    "everything": (
        {"model_size": 32, "num_layers": 1, "preprocess_sequence": "dn", "act_type": "swish1"},
        {
            "num_layers": 3,
            "attention_heads": 2,
            "use_glu": True,
            "positional_embedding_type": "learned",
            "feed_forward_num_hidden": 12,
            "preprocess_sequence": "",
            "postprocess_sequence": "drn",
        },
    ),
}
HUGGINGFACE: dict[str, dict[str, Any]] = {
    "marian_heads": {"encoder_attention_heads": 2, "decoder_attention_heads": 4},
    "marian_ffn": {"encoder_ffn_dim": 24, "decoder_ffn_dim": 40, "encoder_layers": 3},
    "marian_activation": {"activation_function": "quick_gelu"},
}


def perturb(model: torch.nn.Module, seed: int) -> None:
    """Changes all weights, as a training would, norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.15 * torch.randn(parameter.shape, generator=generator)


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Draws all weights, of a model whose own initialization is a part of its training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                mean = float("layer_norm" in name and name.endswith("weight"))
                parameter.normal_(mean, 0.25, generator=generator)


def write(folder: Path, tokens: list[str], logits: list[Any], beams: list[Any]) -> None:
    """Writes what a model is expected to compute.

    Args:
      folder: folder of the checkpoint.
      tokens: vocabulary of the targets, by the library's ids.
      logits: of each pair, [T, V].
      beams: of each source: list of (text, score), the best first.
    """
    arrays = {str(n): np.asarray(one, np.float32) for n, one in enumerate(logits)}
    np.savez_compressed(folder / "expected.npz", **arrays)
    content = {"sources": SOURCES, "targets": TARGETS, "tokens": tokens, "beams": beams}
    (folder / "expected.json").write_text(json.dumps(content, indent=1) + "\n")


def fairseq(folder: Path, flags: str, seed: int) -> None:
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    data = folder / "data-bin"
    data.mkdir()
    for language in ("en", "de"):
        (data / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in WORDS))
    base = (
        f"{data} --task translation -s en -t de --arch transformer --encoder-embed-dim 16"
        " --decoder-embed-dim 16 --encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32"
        " --encoder-attention-heads 2 --decoder-attention-heads 2 --encoder-layers 2"
        " --decoder-layers 2 --lr 0.001"
    )
    args = options.parse_args_and_arch(options.get_training_parser(), f"{base} {flags}".split())
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(seed)
    model = task.build_model(cfg.model)
    perturb(model, seed)
    for side in (model.encoder, model.decoder):
        with torch.no_grad():
            side.embed_tokens.weight[1] = 0
            if getattr(side.embed_positions, "weight", None) is not None:
                side.embed_positions.weight[1] = 0
    model.eval()
    (folder / "checkpoints").mkdir()
    content = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    content["model"] = args
    for part in (content["task"], vars(args)):
        for name in ("data", "save_dir"):
            part.pop(name, None)
    state = {"args": None, "cfg": content, "model": model.state_dict(), "optimizer_history": []}
    torch.save(state, folder / "checkpoints" / "checkpoint_best.pt")
    source, target = task.source_dictionary, task.target_dictionary
    search = argparse.Namespace(beam=BEAM, max_len_a=0, max_len_b=LONGEST)
    generator = task.build_generator([model], search)
    for module in model.modules():
        if hasattr(module, "can_use_fastpath"):
            module.can_use_fastpath = False
    logits, beams = [], []
    for read, written in zip(SOURCES, TARGETS, strict=True):
        ids = source.encode_line(read, add_if_not_exist=False).long()[None]
        out = target.encode_line(written, add_if_not_exist=False).long()[None]
        net = {"src_tokens": ids, "src_lengths": torch.tensor([ids.size(1)])}
        before = torch.cat([out[:, -1:], out[:, :-1]], 1)
        with torch.no_grad():
            logits.append(model(**net, prev_output_tokens=before)[0][0].numpy())
            found = task.inference_step(generator, [model], {"net_input": net})[0]
        beams.append([(target.string(one["tokens"]), float(one["score"])) for one in found])
    write(folder, [target[n] for n in range(len(target))], logits, beams)


def opennmt(folder: Path, flags: str, seed: int) -> None:
    import onmt.opts
    from onmt.inputters.inputter import dict_to_vocabs, vocabs_to_dict
    from onmt.model_builder import build_base_model
    from onmt.translate.translator import build_translator
    from onmt.utils.parse import ArgumentParser

    tokens = ["<unk>", "<blank>", "<s>", "</s>", *WORDS]
    vocabs = dict_to_vocabs(
        {"src": tokens, "tgt": tokens, "data_task": "seq2seq", "decoder_start_token": "<s>"}
    )
    parser = ArgumentParser()
    onmt.opts.train_opts(parser)
    # Defaults first: of an option that is given twice the last one counts.
    base = "-config x -hidden_size 16 -word_vec_size 16 -layers 2 -heads 4 -transformer_ff 24"
    kinds = "" if "lstm" in folder.name else "-encoder_type transformer -decoder_type transformer"
    words = f"{base} {kinds} {flags}".split()[2:]
    opt, _ = parser.parse_known_args([*words, *"-data x -src_vocab x -save_model x".split()])
    ArgumentParser.update_model_opts(opt)
    ArgumentParser.validate_model_opts(opt)
    torch.manual_seed(seed)
    model = build_base_model(opt, vocabs)
    randomize(model, seed)
    with torch.no_grad():
        for side in (model.encoder, model.decoder):
            side.embeddings.word_lut.weight[1] = 0
        model.generator.bias[1] = -20  # padding, which no trained model writes
    model.eval()
    states = model.state_dict()
    torch.save(
        {
            "model": {n: one for n, one in states.items() if "generator" not in n},
            "generator": model.generator.state_dict(),
            "vocab": vocabs_to_dict(vocabs),
            "opt": opt,
            "optim": None,
        },
        folder / "model.pt",
    )
    logits = []
    for read, written in zip(SOURCES, TARGETS, strict=True):
        source = torch.tensor([vocabs["src"](read.split())])[..., None]
        target = torch.tensor([vocabs["tgt"](["<s>", *written.split(), "</s>"])])[..., None]
        with torch.no_grad():
            states, _ = model(source, target[:, :], torch.tensor([source.size(1)]))
            logits.append(model.generator(states)[0].numpy())
    search = ArgumentParser()
    onmt.opts.translate_opts(search)
    given = f"-model {folder / 'model.pt'} -src x -beam_size {BEAM} -n_best {BEAM} -max_length"
    torch.serialization.add_safe_globals([argparse.Namespace])
    search_opt, _ = search.parse_known_args(f"{given} {LONGEST}".split())
    ArgumentParser.validate_translate_opts(search_opt)
    translator = build_translator(search_opt, report_score=False, out_file=io.StringIO())
    beams = []
    for read in SOURCES:
        source = torch.tensor([vocabs["src"](read.split())])[..., None]
        batch = {
            "src": source,
            "srclen": torch.tensor([source.size(1)]),
            "ind_in_bucket": [0],
            "cid": ["x"],
            "cid_line_number": [0],
        }
        with torch.no_grad():
            found = translator.translate_batch(batch, False)
        texts = [
            " ".join(tokens[int(i)] for i in one if int(i) != 3) for one in found["predictions"][0]
        ]
        beams.append(list(zip(texts, map(float, found["scores"][0]), strict=True)))
    write(folder, tokens, logits, beams)


def sockeye(folder: Path, sides: tuple[dict[str, Any], dict[str, Any]], seed: int) -> None:
    from sockeye import encoder, inference, layers, model, transformer, vocab
    from sockeye.data_io import DataConfig, DataStatistics

    tokens = ["<pad>", "<unk>", "<s>", "</s>", *WORDS]
    numbers = {token: n for n, token in enumerate(tokens)}
    common = {
        "model_size": 16,
        "attention_heads": 4,
        "feed_forward_num_hidden": 32,
        "act_type": "relu",
        "num_layers": 2,
        "dropout_attention": 0.0,
        "dropout_act": 0.0,
        "dropout_prepost": 0.0,
        "positional_embedding_type": "fixed",
        "preprocess_sequence": "n",
        "postprocess_sequence": "dr",
        "max_seq_len_source": 30,
        "max_seq_len_target": 30,
    }
    first, second = ({**common, **side} for side in sides)
    statistics = DataStatistics(1, 0, 5, 5, 0, 0, 30, 30, 24, 24, 1.0, 0.3, [(30, 30)], [1], [5.0])
    data = DataConfig(
        data_statistics=statistics,
        max_seq_len_source=30,
        max_seq_len_target=30,
        num_source_factors=1,
        num_target_factors=1,
    )
    size = len(tokens)
    task = layers.LengthRatioConfig(1, 1.0) if folder.name == "length_task" else None
    config = model.ModelConfig(
        config_data=data,
        vocab_source_size=size,
        vocab_target_size=size,
        config_embed_source=encoder.EmbeddingConfig(size, first["model_size"], 0.0),
        config_embed_target=encoder.EmbeddingConfig(size, second["model_size"], 0.0),
        config_encoder=transformer.TransformerConfig(**first),
        config_decoder=transformer.TransformerConfig(**second, depth_key_value=first["model_size"]),
        config_length_task=task,
        weight_tying_type="none" if first["model_size"] != 16 else "trg_softmax",
    )
    torch.manual_seed(seed)
    net = model.SockeyeModel(config)
    randomize(net, seed)
    with torch.no_grad():
        net.output_layer.bias[0] = -20  # padding, which no trained model writes
    net.eval()
    net.save_config(str(folder))
    net.save_parameters(str(folder / "params.best"))
    net.save_version(str(folder))
    for side in ("src", "trg"):
        vocab.vocab_to_json(numbers, str(folder / f"vocab.{side}.0.json"))
    loaded, sources, targets = model.load_model(str(folder), device=torch.device("cpu"))
    loaded.eval()
    logits = []
    for read, written in zip(SOURCES, TARGETS, strict=True):
        source, target = (
            torch.tensor([[numbers.get(w, 1) for w in words]])[..., None]
            for words in ([*read.split(), "</s>"], ["<s>", *written.split()])
        )
        lengths = [torch.tensor([[one.size(1)]]) for one in (source, target)]
        with torch.no_grad():
            found = loaded(source, lengths[0], target, lengths[1])
            logits.append(found["logits"][0].numpy())
    translator = inference.Translator(
        device=torch.device("cpu"),
        ensemble_mode="linear",
        scorer=inference.CandidateScorer(1.0, 0.0, 0.0),
        output_scores=True,
        batch_size=1,
        beam_search_stop="all",
        models=[loaded],
        source_vocabs=sources,
        target_vocabs=targets,
        beam_size=BEAM,
        nbest_size=BEAM,
        max_output_length=LONGEST,
    )
    beams = []
    for read in SOURCES:
        (found,) = translator.translate([inference.make_input_from_plain_string(0, read)])
        scores = [float(np.ravel(score)[0]) for score in found.nbest_scores]
        beams.append(list(zip(found.nbest_translations, scores, strict=True)))
    write(folder, tokens, logits, beams)


def huggingface(folder: Path, changes: dict[str, Any], seed: int) -> None:
    import transformers

    tokens = ["</s>", "<unk>", *WORDS, "<pad>"]
    numbers = {token: n for n, token in enumerate(tokens)}
    size = len(tokens)
    common: dict[str, Any] = {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "vocab_size": size,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "pad_token_id": size - 1,
        "eos_token_id": 0,
        "decoder_start_token_id": size - 1,
        "scale_embedding": True,
        "activation_function": "gelu",
        "forced_eos_token_id": 0,
        "num_beams": BEAM,
    }
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(transformers.MarianConfig(**{**common, **changes}))
    perturb(model, seed)
    model.eval()
    with torch.no_grad():
        model.final_logits_bias.normal_(std=0.2)
    (folder / "vocab.json").write_text(json.dumps(numbers))
    (folder / "tokenizer_config.json").write_text("{}")
    model.generation_config.max_new_tokens = LONGEST
    model.generation_config.num_beams = BEAM
    model.save_pretrained(folder)
    logits, beams = [], []
    for read, written in zip(SOURCES, TARGETS, strict=True):
        source, target = ([numbers.get(w, 1) for w in text.split()] for text in (read, written))
        with torch.no_grad():
            ids = torch.tensor([[*source, 0]])
            before = torch.tensor([[size - 1, *target]])
            logits.append(model(input_ids=ids, decoder_input_ids=before).logits[0].numpy())
            found = model.generate(
                ids,
                num_return_sequences=BEAM,
                return_dict_in_generate=True,
                output_scores=True,
                bad_words_ids=[[size - 1]],
                renormalize_logits=True,
            )
            texts = [
                " ".join(tokens[i] for i in row if i not in (0, size - 1))
                for row in found.sequences.tolist()
            ]
            beams.append(list(zip(texts, found.sequences_scores.tolist(), strict=True)))
    write(folder, tokens, logits, beams)


LIBRARIES = {
    "fairseq": (fairseq, FAIRSEQ),
    "opennmt": (opennmt, OPENNMT),
    "sockeye": (sockeye, SOCKEYE),
    "huggingface": (huggingface, HUGGINGFACE),
}


def main() -> None:
    """Writes the checkpoints that the command line names."""
    library, root, *names = sys.argv[1:]
    make, configurations = LIBRARIES[library]
    for number, (name, configuration) in enumerate(configurations.items()):
        if names and name not in names:
            continue
        folder = Path(root) / library / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder, configuration, number)
        print(f"{library}/{name}")


if __name__ == "__main__":
    main()
