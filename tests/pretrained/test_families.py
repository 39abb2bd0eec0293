"""Pretrained models compute what transformers computes, for each family of them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.policies import policy_of
from t2t_torch.decode.search import beam_search
from t2t_torch.layers.pretrained import join_texts
from tests.pretrained.conftest import padded
from tests.pretrained.folders import ENCODERS, FAMILIES, LANGUAGE_MODELS, SEQ2SEQ, TEXTS, save_model

NEW_TOKENS = 12
WITHIN = 1e-4


def states_of(model, text, *columns):
    """Our ids and states of each row of texts."""
    ids = [padded(text.encode_batch(column)) for column in columns]
    joined = join_texts(model.network, ids)
    with torch.inference_mode():
        states = model.network.states(joined)
    rows = zip(joined.ids, joined.mask, states, strict=True)
    return [(ids[mask].tolist(), states[mask]) for ids, mask, states in rows]


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_has_the_same_ids_and_states(family, tmp_path, model_of):
    theirs, tokenizer = save_model(family, tmp_path)
    model = model_of("pretrained_encoder", tmp_path)
    text = model.features.inputs["inputs"]
    for columns in ([TEXTS], [TEXTS[:5], TEXTS[5:]]):
        batch = tokenizer(*columns, padding=True, return_tensors="pt")
        with torch.inference_mode():
            expected = theirs(**batch).last_hidden_state
        mask = batch["attention_mask"].bool()
        for row, (ids, states) in enumerate(states_of(model, text, *columns)):
            assert ids == batch["input_ids"][row][mask[row]].tolist()
            torch.testing.assert_close(states, expected[row][mask[row]], atol=WITHIN, rtol=0)


@pytest.mark.parametrize("family", [*LANGUAGE_MODELS, *SEQ2SEQ])
def test_a_decoder_has_the_same_logits(family, tmp_path, model_of):
    model, theirs, tokenizer = decoder(family, tmp_path, model_of)
    text, network = model.features.targets["targets"], model.network
    start, order = list(network.architecture.start), network.order
    inputs, targets = (padded(text.encode_batch(some)) for some in (TEXTS, TEXTS[::-1]))
    with torch.inference_mode():
        logits = model.logits({"inputs": inputs, "targets": targets})
    for row, written in enumerate(TEXTS[::-1]):
        ids = tokenizer(written, add_special_tokens=False).input_ids
        before = list(start)
        if family in SEQ2SEQ:
            batch = {**tokenizer(TEXTS[row], return_tensors="pt")}
            batch["decoder_input_ids"] = torch.tensor([[*before, *ids]])
        else:
            before += tokenizer(TEXTS[row], add_special_tokens=False).input_ids
            batch = {"input_ids": torch.tensor([[*before, *ids]])}
        with torch.inference_mode():
            expected = theirs(**batch).logits[0, max(0, len(before) - 1) :, order]
        own = logits["targets"][row, : len(ids) + 1]
        if not before:  # the first id is given
            assert not own[0, 1:].any()
            own = own[1:]
        torch.testing.assert_close(own[:, 1:], expected[:, 1:], atol=WITHIN, rtol=0)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("family", [*LANGUAGE_MODELS, *SEQ2SEQ])
def test_a_search_finds_the_same_texts(family, beams, tmp_path, model_of):
    model, theirs, tokenizer = decoder(family, tmp_path, model_of)
    order, start = model.network.order, model.network.architecture.start
    rows = [text for text in TEXTS[:5] if text]
    text = model.features.inputs["inputs"]
    batch = {"inputs": padded(text.encode_batch(rows))}
    pad, end = order[:2].tolist()
    expected = []
    for row in rows:
        if family in SEQ2SEQ:
            given = {**tokenizer(row, return_tensors="pt")}
            given["decoder_input_ids"] = read = torch.tensor([start])
        else:
            ids = tokenizer(row, add_special_tokens=False).input_ids
            given = {"input_ids": (read := torch.tensor([[*start, *ids]]))}
        result = theirs.generate(
            **given,
            max_new_tokens=NEW_TOKENS,
            num_beams=beams,
            do_sample=False,
            length_penalty=1.0,
            forced_eos_token_id=None,
            suppress_tokens=None if pad == end else [pad],  # which is never written here
            renormalize_logits=True,
            pad_token_id=pad,
            eos_token_id=end,
        )
        expected.append(result[0, read.size(1) :].tolist())
    rules = f"search_rules=huggingface,force_eos=false,beam_size={beams}"
    penalty = ",length_offset=0,length_scale=1,alpha=1.0" if beams > 1 else ""
    policy = policy_of(parse_decode_hparams(f"{rules}{penalty}"))
    with torch.inference_mode():
        result = beam_search(
            model.step,
            model.encode(batch),
            max_lengths=torch.full((len(rows),), NEW_TOKENS),
            beam_size=beams,
            policy=policy,
        )
    for row in range(len(rows)):
        ids = result.ids[row, 0].tolist()
        own = [order[number].item() for number in ids if number > 1]
        known = expected[row]
        assert own == (known[: known.index(end)] if end in known else known)


def decoder(family, folder, model_of):
    has_encoder = family in SEQ2SEQ
    kind = "AutoModelForSeq2SeqLM" if has_encoder else "AutoModelForCausalLM"
    theirs, tokenizer = save_model(family, folder, kind)
    name = "pretrained_seq2seq" if has_encoder else "pretrained_lm"
    return model_of(name, folder), theirs, tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_of_any_text_are_those_of_the_tokenizer(family, tmp_path, text_of):
    kind = "AutoModelForSeq2SeqLM" if family in SEQ2SEQ else "AutoModel"
    _, tokenizer = save_model(family, tmp_path, kind)
    text = text_of(tmp_path)
    order = list(range(len(text.encoder.tokens)))

    @settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.text(max_size=60))
    def check(written):
        known = tokenizer.backend_tokenizer.encode(written, add_special_tokens=False)
        own = [order[number] for number in text.encode(written)[:-1]]
        tokens = [text.encoder.tokens[number] for number in own]
        unknown = tokenizer.unk_token
        vocabulary = tokenizer.get_vocab()
        assert tokens == [one if one in vocabulary else unknown for one in known.tokens]

    check()


def test_batch_mates_change_nothing(tmp_path, model_of):
    save_model("deberta-v2", tmp_path)
    model = model_of("pretrained_encoder", tmp_path)
    text = model.features.inputs["inputs"]
    together = states_of(model, text, TEXTS)
    for row, written in enumerate(TEXTS):
        ((ids, states),) = states_of(model, text, [written])
        assert ids == together[row][0]
        torch.testing.assert_close(states, together[row][1], atol=1e-5, rtol=0)


def test_texts_are_cut_to_the_models_length(tmp_path, model_of):
    _, tokenizer = save_model("roberta", tmp_path)
    tokenizer.model_max_length = 20
    tokenizer.save_pretrained(tmp_path)
    model = model_of("pretrained_encoder", tmp_path)
    text = model.features.inputs["inputs"]
    long = "the lazy dog " * 9
    batch = tokenizer(long, truncation=True)
    ((ids, _),) = states_of(model, text, [long])
    assert len(ids) == 20
    assert ids == batch.input_ids
    pair = tokenizer("the quick fox", long, truncation="only_second")
    ((ids, _),) = states_of(model, text, ["the quick fox"], [long])
    assert ids == pair.input_ids
