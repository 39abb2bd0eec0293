from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Real, TreeFeature, Words, WordStarts
from t2t_torch.features.word import WordLabel
from t2t_torch.hparams.rnng import RNNGHParams
from t2t_torch.loss import total_loss
from t2t_torch.models.rnng import RNNG
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.tree import TransitionEncoder

WORDS = Words(IntegerEncoder(17))
PHRASES = TreeFeature(TransitionEncoder(["S", "NP", "VP"]))
REQUESTS = TreeFeature(TransitionEncoder(["IN:A", "IN:B", "SL:C"]))


def made(tree: TreeFeature = PHRASES, **settings: Any) -> RNNG:
    torch.manual_seed(3)
    sizes = {"hidden_size": 12, "embedding_size": 10, "num_hidden_layers": 2}
    hparams = registry.hparams("rnng_tiny").replace(**{**sizes, **settings})
    assert isinstance(hparams, RNNGHParams)
    return RNNG(hparams, Features({"inputs": WORDS}, {"targets": tree})).eval()


def trees_over(batch: dict[str, Tensor]) -> list[list[int]]:
    return [[i for i in row if i > 1] for row in batch["targets"].tolist()]


def slowly(model: RNNG, words: Tensor, ids: list[int]) -> Tensor:
    """The hidden states of one sentence, transition by transition, as the paper has it.

    An ordinary stack of (vector, memory of the LSTM's layers, whether it is open), PyTorch's own
    cells, and no batch.  [T + 1, H].
    """
    size, layers = model.hparams.hidden_size, model.hparams.num_hidden_layers
    batch = {"inputs": words[None]}
    x = model.tokens(model.bottom(batch))[0]
    buffer = [torch.zeros(size)]
    memory: Any = None
    for vector in x.flip(0):  # the last word is the first in
        out, memory = recurrent(model.buffer, vector, memory)
        buffer.append(out)
    table = model.modalities["targets"].bottom.weight
    stack: list[Any] = []
    nothing = [(torch.zeros(size), torch.zeros(size))] * layers
    history, states = None, []
    action = torch.zeros(size)
    for identity in [*ids, None]:
        out, history = recurrent(model.history, action, history)
        top = stack[-1][1][-1][0] if stack else torch.zeros(size)
        states.append(model.summary(torch.cat([buffer[-1], top, out])).relu())
        if identity is None:
            return torch.stack(states)
        action = table[identity]
        vector, is_open = action, True
        if identity == 2:
            vector, is_open = buffer.pop(), False
        elif identity == 3:
            parts: list[Tensor] = []
            ended = False
            while not ended:  # down to what was opened last, with it
                part, _, ended = stack.pop()
                parts.insert(0, part)
            vector, is_open = composed(model, parts), False
        below = stack[-1][1] if stack else nothing
        after, given = [], vector
        for cell, (h, c) in zip(model.stack.layers, below, strict=True):
            h, c = (part[0] for part in cell(given[None], (h[None], c[None])))
            after.append((h, c))
            given = h
        stack.append((vector, after, is_open))
    raise AssertionError


def recurrent(lstm: Any, vector: Tensor, memory: Any) -> tuple[Tensor, Any]:
    out, memory = lstm.run(vector[None, None], None, memory)
    return out[0, 0], memory


def composed(model: RNNG, parts: list[Tensor]) -> Tensor:
    compose: Any = model.compose
    if model.hparams.composition == "sum":
        return torch.tanh(compose.output.weight @ sum(parts) + compose.output.bias)
    label, *children = parts
    forth = compose.forth(torch.stack([label, *children])[None])[0][0, -1]
    back = compose.back(torch.stack([label, *children[::-1]])[None])[0][0, -1]
    return torch.tanh(compose.output(torch.cat([forth, back])))


@pytest.mark.slow
@pytest.mark.parametrize("composition", ["sum", "blstm"])
@pytest.mark.parametrize("tree", [PHRASES, REQUESTS], ids=["phrases", "requests"])
def test_a_batch_is_computed_as_the_paper_does_one_sentence(
    composition: str, tree: TreeFeature
) -> None:
    model = made(tree, composition=composition)
    for seed in range(3):
        batch = testing.random_batch(model.features, rows=4, seed=seed)
        with torch.no_grad():
            found = model.body(model.bottom(batch))["targets"].states
            for b, ids in enumerate(trees_over(batch)):
                words = batch["inputs"][b][batch["inputs"][b] > 0]
                expected = slowly(model, words, ids)
                torch.testing.assert_close(
                    found[b, : len(expected)], expected, atol=1e-5, rtol=1e-5
                )


def test_composition_reads_the_children_and_their_order() -> None:
    for composition, in_order in (("sum", False), ("blstm", True)):
        compose = made(composition=composition).compose
        members = torch.randn(1, 3, 12)
        there = torch.ones(1, 3, dtype=torch.bool)
        whole = compose(members, there)
        other = members.clone()
        other[0, 2] += 1
        assert not torch.allclose(compose(other, there), whole)
        assert torch.allclose(compose(members[:, [0, 2, 1]], there), whole, atol=1e-6) != in_order


def test_padding_among_the_members_changes_nothing() -> None:
    compose = made(composition="blstm").compose
    members = torch.zeros(1, 5, 12)
    members[:, :3] = torch.randn(1, 3, 12)
    there = torch.arange(5)[None] < 3
    torch.testing.assert_close(compose(members, there), compose(members[:, :3], there[:, :3]))


def test_with_valid_actions_only_the_loss_is_of_a_softmax_over_the_valid_ones() -> None:
    model = made(REQUESTS, valid_actions_only=True)
    batch = testing.random_batch(model.features)
    with torch.no_grad():
        output = model(batch)
        logits = output.logits["targets"]
        whole = made(REQUESTS)(batch).logits["targets"]
        loss = output.losses["targets"]
        training = total_loss(model.train()(batch))
    first = logits[0, 0]
    allowed = {REQUESTS.encoder.encode(f"(IN:{x}")[0] for x in "AB"} | {4}
    assert set(torch.isfinite(first).nonzero().flatten().tolist()) == allowed
    kept = torch.isfinite(logits)
    torch.testing.assert_close(logits[kept], whole[kept])
    there = batch["targets"] > 0
    by_hand = -logits.log_softmax(-1).gather(2, batch["targets"][..., None])[..., 0][there].sum()
    assert math.isfinite(by_hand)
    torch.testing.assert_close(loss.sum, by_hand)
    assert loss.sum < made(REQUESTS)(batch).losses["targets"].sum
    assert torch.isfinite(training.sum)


@pytest.mark.parametrize(
    "name", ["label_smoothing", "confidence_penalty", "r_drop_alpha", "r3f_weight"]
)
def test_what_reads_all_probabilities_contradicts_valid_actions_only(name: str) -> None:
    with pytest.raises(HParamsError, match=f"{name}=0.1 reads .* Set one of them to 0"):
        made(valid_actions_only=True, **{name: 0.1})


def test_targets_that_are_no_trees_are_survived() -> None:
    model = made(REQUESTS, valid_actions_only=True)
    ids = torch.tensor(
        [[3, 2, 2, 2, 2, 2, 3, 1], [5, 5, 5, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
    )
    batch = {"inputs": torch.tensor([[4, 5], [4, 0], [6, 7]]), "targets": ids}
    output = model(batch)
    assert torch.isfinite(output.losses["targets"].sum)
    everything_ended = {"inputs": batch["inputs"][2:], "targets": ids[2:]}
    assert torch.isfinite(model(everything_ended).losses["targets"].sum)


def test_words_of_several_ids_are_shifted_as_words() -> None:
    words = Words(ByteEncoder())
    features = Features(
        {"inputs": words}, {"targets": PHRASES}, notes={"starts": WordStarts("inputs", words)}
    )
    hparams = registry.hparams("rnng_tiny").replace(hidden_size=12)
    model = RNNG(hparams, features).eval()
    text = ["ab", "c"]
    batch = {
        "inputs": torch.tensor([words.encode(text)]),
        "starts": torch.tensor([WordStarts("inputs", words).encode(text)]),
        "targets": torch.tensor([PHRASES.encode("(S ab c)")]),
    }
    buffer, count = model._buffer(model.bottom(batch))
    assert buffer.shape[1] == 3 and count.tolist() == [2]
    assert torch.isfinite(model(batch).losses["targets"].sum)


def test_given_labels_of_words_are_read() -> None:
    tags = WordLabel("inputs", ClassLabelEncoder(["DT", "NN"]))
    features = Features({"inputs": WORDS, "tags": tags}, {"targets": PHRASES})
    model = RNNG(registry.hparams("rnng_tiny"), features).eval()
    batch = testing.random_batch(features)
    with torch.no_grad():
        first = model(batch).logits["targets"]
        batch["tags"] = torch.where(batch["tags"] > 0, 3 - batch["tags"], 0)
        assert not torch.allclose(model(batch).logits["targets"], first)


def test_what_it_cannot_read_or_give_is_refused() -> None:
    tree = {"targets": PHRASES}
    hparams = registry.hparams("rnng_tiny")
    with pytest.raises(HParamsError, match="reads Text"):
        RNNG(hparams, Features({"inputs": WORDS, "dense": Real(2)}, tree))
    with pytest.raises(HParamsError, match="produces TreeFeature"):
        label = ClassLabel(ClassLabelEncoder(["a", "b"]))
        RNNG(hparams, Features({"inputs": WORDS}, {"targets": label}))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["rnng_top", "rnng_treebank"])
def test_its_sets_hold_the_contract(name: str) -> None:
    testing.check_model(RNNG, registry.hparams(name))


@pytest.mark.slow
def test_twenty_trees_are_learnt_by_heart() -> None:
    model = made(REQUESTS, num_hidden_layers=1, hidden_size=32, embedding_size=32).train()
    batch = testing.random_batch(model.features, rows=20)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        loss = total_loss(model(batch))
        optimizer.zero_grad()
        (loss.sum / loss.weight).backward()
        optimizer.step()
    model.eval()
    guesses = model(batch).logits["targets"].argmax(-1)
    there = batch["targets"] > 0
    assert (guesses == batch["targets"])[there].float().mean() > 0.98
