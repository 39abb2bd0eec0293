"""The reader finds answers, and its parts are those of DrQA."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.features import NO_SPAN, Features, Span, Words, WordShape
from t2t_torch.modalities.label import MAX_WORDS, best_spans
from t2t_torch.models.span_qa import SpanQa
from t2t_torch.text.encoder import IntegerEncoder

WORDS = Words(IntegerEncoder(60))
FEATURES = Features({"question": WORDS, "context": WORDS}, {"targets": Span()})


def made_up(rows, seed):
    """Questions whose answer is the two words behind the one word that they share with a text."""
    generator = torch.Generator().manual_seed(seed)
    context = torch.stack([torch.randperm(50, generator=generator)[:12] + 2 for _ in range(rows)])
    place = torch.randint(0, 10, (rows, 1), generator=generator)
    asked = context.gather(1, place)
    asked[::5] = 55  # a word that no text has: there is no answer
    question = torch.cat([torch.full((rows, 1), 58), asked, torch.full((rows, 1), 59)], 1)
    targets = torch.cat([place + 1, place + 2], 1)
    targets[::5] = NO_SPAN
    return {"question": question, "context": context, "targets": targets}


@pytest.mark.slow
def test_twenty_questions_are_learnt_and_others_are_answered():
    torch.manual_seed(0)
    model = SpanQa(registry.hparams("span_qa_tiny"), FEATURES)
    learnt, others = made_up(20, 1), made_up(200, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(100):
        batch = learnt if step % 5 == 0 else made_up(32, 100 + step)
        loss = model.train()(batch).losses["targets"]
        optimizer.zero_grad()
        (loss.sum / loss.weight).backward()
        optimizer.step()
    for batch, least in ((learnt, 1.0), (others, 0.9)):
        with torch.no_grad():
            found = best_spans(model.eval()(batch).logits["targets"])
        assert (found == batch["targets"]).all(1).float().mean() >= least


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["span_qa_base", "span_qa_tiny"])
def test_each_set_learns_a_batch(name):
    torch.manual_seed(0)
    model = SpanQa(testing.small(registry.hparams(name)), FEATURES)
    testing._check_learning(model, testing.random_batch(FEATURES))


def test_what_is_known_of_the_texts_words_is_read():
    inputs = {**FEATURES.inputs, "context_shape": WordShape("context")}
    hparams = testing.small(registry.hparams("span_qa_tiny")).replace(match_feature=False)
    features = Features(inputs, FEATURES.targets)
    torch.manual_seed(0)
    model = SpanQa(hparams, features).eval()
    batch = testing.random_batch(features)
    before = model(batch).logits["targets"]
    batch["context_shape"] = batch["context_shape"].where(batch["context_shape"] == 0, 3)
    assert not torch.equal(model(batch).logits["targets"], before)


def test_the_scores_are_bilinear_forms_of_question_and_word():
    torch.manual_seed(0)
    model = SpanQa(testing.small(registry.hparams("span_qa_tiny")), FEATURES).eval()
    seen = {}
    model.context_layers.register_forward_hook(lambda *given: seen.update(context=given[2]))
    model.summary.register_forward_hook(lambda *given: seen.update(question=given[2]))
    batch = testing.random_batch(FEATURES)
    logits = model(batch).logits["targets"]
    for end, linear in enumerate(model.ends):
        for row in range(3):
            for word in range(int((batch["context"][row] != 0).sum())):
                score = seen["context"][row, word] @ linear.weight @ seen["question"][row]
                torch.testing.assert_close(logits[row, word + 1, end], score)
            nowhere = model.nowhere @ linear.weight @ seen["question"][row]
            torch.testing.assert_close(logits[row, 0, end], nowhere)


def test_the_best_span_is_that_of_two_loops_and_has_thirty_words_at_most():
    torch.manual_seed(0)
    for _ in range(20):
        logits = 3 * torch.randn(1, 41, 2)
        first, last = logits[0].log_softmax(0).unbind(-1)
        best = (first[0] + last[0]).item(), [NO_SPAN, NO_SPAN]
        for i in range(40):
            for j in range(i, min(i + MAX_WORDS, 40)):
                best = max(best, ((first[i + 1] + last[j + 1]).item(), [i, j]))
        assert best_spans(logits)[0].tolist() == best[1]
    sure = torch.zeros(1, 41, 2)
    sure[0, 1, 0] = sure[0, 36, 1] = 9.0  # 36 words
    first, last = best_spans(sure)[0].tolist()
    assert 0 <= last - first < MAX_WORDS
