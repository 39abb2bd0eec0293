"""Problems of restoring a corrupted text: `NAME_masked`, `NAME_spans`, `NAME_noised`."""

from __future__ import annotations

import re

import numpy as np
import pytest

from t2t_torch import registry
from t2t_torch.errors import HParamsError, RegistryError, UsageError
from t2t_torch.features import ClassLabel, Features, Tags, Text
from t2t_torch.features.denoising import Corruption, MaskedTokens, corrupted, word_borders
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.mode import Split
from t2t_torch.problems.languagemodel_corpora import LanguagemodelPtb10k
from t2t_torch.text.encoder import EOS, PAD, ByteEncoder, ClassLabelEncoder, TokenEncoder
from t2t_torch.text.pieces import PieceEncoder, SpaceSplitter

WORDS = TokenEncoder([f"w{i}" for i in range(40)] + ["end."])
LABEL = ClassLabel(ClassLabelEncoder(["a", "b"]))
FIRST_MARK = WORDS.vocab_size


def changed(kind, ids, seed=0, encoder=WORDS, **settings):
    features = corrupted(Features({"inputs": Text(encoder)}, {"targets": LABEL}), kind)
    change = Corruption(kind, basic_params1().replace(**settings)).of(features)
    ids = np.array(ids, np.int32)
    made = change({"inputs": ids, "targets": ids}, Split.TRAIN, np.random.default_rng(seed))
    return made["inputs"].tolist(), made["targets"].tolist()


def text_of(length, seed=1):
    return [*np.random.default_rng(seed).integers(2, WORDS.vocab_size, length).tolist(), EOS]


@pytest.mark.parametrize("density", [0.0, 0.5])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 40, 300])
@pytest.mark.parametrize("kind", registry.CORRUPTIONS)
@pytest.mark.parametrize("seed", range(5))
def test_the_text_is_restored_from_inputs_and_targets(kind, length, seed, density):
    ids = text_of(length, seed)
    inputs, targets = changed(kind, ids, seed, noise_density=density)
    if length > 2:
        assert inputs != ids or any(targets)  # something is hidden
    assert max(len(inputs), len(targets)) <= len(ids)  # batches are planned by this length
    if kind == "masked":
        assert len(inputs) == len(targets) == len(ids)
        restored = [t if t != PAD else i for i, t in zip(inputs, targets, strict=True)]
    elif kind == "noised":
        restored = targets
    else:
        spans, restored = iter(targets[:-1]), []
        held = list(spans)
        for one in inputs:
            if one < FIRST_MARK:
                restored.append(one)
                continue
            start = held.index(one) + 1
            after = [i for i in range(start, len(held)) if held[i] >= FIRST_MARK]
            restored += held[start : after[0] if after else None]
        assert targets[-1] == EOS
    assert restored == ids


def test_the_share_of_hidden_tokens_is_that_of_the_settings():
    ids = text_of(2000)
    for density in (0.0, 0.4):
        inputs, targets = changed("masked", ids, noise_density=density)
        hidden = [(i, t) for i, t in zip(inputs, targets, strict=True) if t != PAD]
        assert len(hidden) == round(2000 * (density or 0.15))
        assert 0.75 < sum(i == FIRST_MARK for i, _ in hidden) / len(hidden) < 0.85
        assert 0.07 < sum(i == t for i, t in hidden) / len(hidden) < 0.14
    inputs, targets = changed("spans", ids, noise_density=0.3, mean_span_length=4.0)
    assert len([one for one in targets if one < FIRST_MARK]) == 600 + 1  # and EOS
    inputs, _ = changed("noised", ids, permute_sentences=False)
    assert len([one for one in inputs if one < FIRST_MARK]) == 2000 - 600 + 1


def test_sentences_are_permuted_whole():
    end = WORDS.vocab_size - 1
    ids = [2, 3, end, 4, 5, end, 6, 7, end, EOS]
    for seed in range(10):
        inputs, _ = changed("noised", ids, seed, noise_density=0.01)  # one token
        assert inputs[-1] == EOS
    orders = {tuple(changed("noised", ids, seed, noise_density=0.01)[0]) for seed in range(10)}
    assert len(orders) > 3


def test_all_bytes_of_a_word_are_hidden_or_none():
    text = "some words of several letters, and more of them"
    ids = ByteEncoder().encode(text)
    for seed in range(5):
        _, targets = changed("masked", ids, seed, ByteEncoder(), mask_random_share=0.0)
        hidden = [target != PAD for target in targets]
        for word in re.finditer(r" ?\S+", text):  # the space belongs to the word after it
            assert len(set(hidden[word.start() : word.end()])) == 1


def test_word_borders_are_those_of_the_vocabulary():
    begins, ends = word_borders(WORDS)
    assert begins[2:].all() and ends[2:].all()


def test_the_names_are_views_of_one_data_set():
    for kind in registry.CORRUPTIONS:
        name = f"languagemodel_ptb10k_{kind}"
        problem = registry.problem(name)
        assert problem.full_name == name
        assert problem.dataset_name == "languagemodel_ptb10k"
        assert registry.parse_problem_name(name) == ("languagemodel_ptb10k", False, False, kind)
    for name in ("masked_rev", "rev_masked", "masked_spans", "masked_pretrained"):
        with pytest.raises(RegistryError, match="comes last, after _pretrained"):
            registry.problem(f"languagemodel_ptb10k_{name}")
    with pytest.raises(RegistryError, match="has no texts"):
        registry.problem("image_mnist_masked")


def test_features_of_a_problem_without_one_text_are_refused():
    two = Features({"inputs": Text(WORDS)}, {"targets": Text(WORDS)})
    for features in (two, Features({}, {"targets": LABEL})):
        with pytest.raises(UsageError, match="Name a problem with one text"):
            corrupted(features, "masked")
    masked = corrupted(Features({}, {"targets": Text(WORDS)}), "masked")
    assert masked.columns == {"inputs": "targets", "targets": "targets"}
    assert isinstance(masked.targets["targets"], MaskedTokens)
    assert masked.targets["targets"].produced_like is Tags


def test_random_tokens_are_words():
    encoder = PieceEncoder(
        ["<pad>", "<EOS>", "[UNK]", "[MASK]", "a", "b"], 2, SpaceSplitter(), silent=[3]
    )
    inputs, targets = changed(
        "masked", [4, 5] * 200, encoder=encoder, mask_random_share=1.0, mask_kept_share=0.0
    )
    assert {i for i, t in zip(inputs, targets, strict=True) if t != PAD} == {4, 5}
    inputs, _ = changed("masked", [4, 5] * 200, encoder=encoder)
    assert set(inputs) == {3, 4, 5}  # its own mark
    with pytest.raises(HParamsError, match="more than 1 together"):
        changed("masked", [4, 5], encoder=encoder, mask_random_share=0.7, mask_kept_share=0.7)


class Changing(LanguagemodelPtb10k):
    """Changes examples."""

    def preprocess_example(self, example, mode, rng):
        return example


def test_examples_that_a_problem_changes_are_not_restored():
    problem = registry.problem_view(Changing, "changing_masked")
    with pytest.raises(HParamsError, match=r"Changing\.preprocess_example"):
        problem.preprocessing(basic_params1())


def test_settings_that_nothing_reads_are_refused():
    with pytest.raises(HParamsError, match="_masked read it"):
        registry.problem("languagemodel_ptb10k_spans").preprocessing(
            basic_params1().replace(mask_kept_share=0.5)
        )
    with pytest.raises(HParamsError, match="_masked or _spans or _noised"):
        registry.problem("sentiment_imdb").preprocessing(basic_params1().replace(noise_density=0.5))
