"""What hyperparameters add to a training loss: entropy, a second pass, a teacher."""

from __future__ import annotations

import pytest
import torch
from loss_targets import batch_of, features_of, modality_of, training_loss
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Span, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.layers import cross_entropy as module
from t2t_torch.layers.cross_entropy import entropy, kl_divergence
from t2t_torch.loss import TeacherOutput
from t2t_torch.modality import Hidden
from t2t_torch.model import T2TModel
from t2t_torch.objectives.objective import Objective, check_objective
from t2t_torch.text.encoder import IntegerEncoder

HPARAMS = registry.hparams("transformer_test").replace(label_smoothing=0.1)
ENCODER = registry.hparams("transformer_encoder_tiny").replace(label_smoothing=0.0)
DISTRIBUTIONS = [Text, Tags, ClassLabel, Span, SoftLabel, MultiLabel]


def test_divergence_and_entropy_are_torchs():
    torch.manual_seed(0)
    p, q = torch.randn(4, 7), torch.randn(4, 7)
    expected = F.kl_div(q.log_softmax(-1), p.log_softmax(-1), log_target=True, reduction="none")
    torch.testing.assert_close(kl_divergence(p, q), expected.sum(-1))
    torch.testing.assert_close(entropy(p), torch.distributions.Categorical(logits=p).entropy())


def test_what_cannot_be_adds_nothing_and_has_no_gradient():
    p = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    q = torch.tensor([[0.5, 0.0, -torch.inf]], requires_grad=True)
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(p[:, :2], q[:, :2]))
    torch.testing.assert_close(entropy(p), entropy(p[:, :2]))
    (kl_divergence(p, q) + entropy(p)).sum().backward()
    assert p.grad.isfinite().all() and q.grad.isfinite().all()
    assert p.grad[0, 2] == 0


def of_logits(kind, passes, targets, weights=None, taught=None, **hparams):
    """The training loss of logits, as if `top` had made them."""
    modality = modality_of(kind).train()
    modality.top = torch.nn.Identity()
    output = None if taught is None else TeacherOutput(Hidden(taught), modality.logits)
    return training_loss(modality, passes, targets, weights, output, **hparams)


def distributions(kind, logits):
    """The probabilities of each distribution, [items, n, V]: n for an item, which are averaged."""
    if kind is Span:
        return logits.softmax(1).transpose(1, 2)
    if kind is MultiLabel:
        p = logits.sigmoid()
        return torch.stack([1 - p, p], -1)
    return logits.softmax(-1)[:, None]


@pytest.mark.parametrize("kind", [ClassLabel, Span, SoftLabel, MultiLabel])
def test_the_confidence_penalty_takes_the_entropy_off(kind):
    logits, targets = batch_of(kind)
    weights = torch.tensor([1.0, 0.5, 2.0, 0.0])
    plain = of_logits(kind, [logits], targets, weights)
    found = of_logits(kind, [logits], targets, weights, confidence_penalty=0.3)
    p = distributions(kind, logits)
    by_item = torch.special.entr(p).sum(-1).mean(1)
    if kind is ClassLabel:
        weights = weights * (targets >= 0)
    torch.testing.assert_close(found.sum, plain.sum - 0.3 * (by_item * weights).sum())
    assert found.weight == plain.weight


@pytest.mark.parametrize("kind", [ClassLabel, Span, SoftLabel, MultiLabel])
def test_r_drop_is_half_of_the_papers_loss(kind):
    logits, targets = batch_of(kind)
    other = torch.where(logits.isinf(), logits, logits.flip(0).nan_to_num(neginf=0.3) * 0.5)
    found = of_logits(kind, [logits, other], targets, r_drop_alpha=0.8)
    each = [of_logits(kind, [one], targets) for one in (logits, other)]
    p, q = distributions(kind, logits), distributions(kind, other)
    there = p > 0
    log_ratio = torch.where(there, p.log() - q.log(), 0.0)
    both = ((p - q) * log_ratio).sum(-1).mean(1)  # KL(p, q) + KL(q, p)
    if kind is ClassLabel:
        both = both * (targets >= 0)
    papers = each[0].sum + each[1].sum + 0.8 / 2 * both.sum()
    torch.testing.assert_close(found.sum, papers / 2)
    assert found.weight == each[0].weight


@pytest.mark.parametrize("kind", [ClassLabel, Span, SoftLabel, MultiLabel])
def test_a_teachers_share_is_the_divergence_at_a_temperature_times_its_square(kind):
    logits, targets = batch_of(kind)
    taught = torch.where(logits.isinf(), logits, logits.flip(0).nan_to_num(neginf=0.3))
    hparams = {"distill_from": "run", "distill_weight": 0.7, "distill_temperature": 2.0}
    found = of_logits(kind, [logits], targets, taught=taught, **hparams)
    data = of_logits(kind, [logits], targets)
    p, q = distributions(kind, taught / 2.0), distributions(kind, logits / 2.0)
    divergence = (torch.where(p > 0, p * (p.log() - q.log()), 0.0)).sum(-1).mean(1)
    if kind is ClassLabel:
        divergence = divergence * (targets >= 0)
    torch.testing.assert_close(found.sum, 0.3 * data.sum + 0.7 * 4.0 * divergence.sum())


def test_a_student_that_is_its_teacher_has_no_more_to_learn_from_it():
    logits, targets = batch_of(ClassLabel)
    logits.requires_grad_(True)
    loss = of_logits(ClassLabel, [logits], targets, taught=logits.detach(), distill_weight=1.0)
    (gradient,) = torch.autograd.grad(loss.sum, logits)
    assert loss.sum.item() == pytest.approx(0.0, abs=1e-6)
    assert gradient.abs().max() < 1e-6


SETTINGS = [
    {"loss": "focal"},
    {"loss": "hinge"},
    {"confidence_penalty": 0.2},
    {"r_drop_alpha": 1.0},
    {"distill_from": "run", "distill_temperature": 3.0},
    {"loss": "focal", "confidence_penalty": 0.1, "r_drop_alpha": 1.0, "distill_from": "run"},
    {},
]


def text_loss(settings, weights, chunk_bytes, monkeypatch):
    """The loss of a text's states, and its gradients by states and table."""
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk_bytes)
    modality = modality_of(Text, layer_prepostprocess_dropout=0.1, **settings).train()
    modality.target_loss.label_smoothing = 0.1
    _, targets = batch_of(Text)
    generator = torch.Generator().manual_seed(1)
    shape = (*targets.shape, 6)
    states = [torch.randn(shape, generator=generator, requires_grad=True) for _ in range(2)]
    used, taught = states if "r_drop_alpha" in settings else states[:1], None
    if "distill_from" in settings:
        teacher = modality_of(Text)
        torch.nn.init.normal_(teacher.top.weight)
        taught = TeacherOutput(Hidden(torch.randn(shape)), teacher.logits)
    loss = training_loss(modality, used, targets, weights, taught, **settings)
    return loss, torch.autograd.grad(loss.sum * 0.5, [*used, modality.top.weight])


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 1.0, 0.0])], ids=["", "weights"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_texts_loss_in_chunks_is_that_of_all_logits(settings, weights, monkeypatch):
    torch.manual_seed(0)
    whole, expected = text_loss(settings, weights, 2**30, monkeypatch)
    torch.manual_seed(0)
    chunked, found = text_loss(settings, weights, 1, monkeypatch)
    torch.testing.assert_close(chunked, whole)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_weights_of_examples_count_in_the_linear_cross_entropy_as_in_that_of_logits():
    modality, (_, targets) = modality_of(Text).train(), batch_of(Text)
    modality.target_loss.label_smoothing = 0.1
    weights = torch.tensor([0.5, 2.0, 1.0, 0.0])
    states = torch.randn(*targets.shape, 6, requires_grad=True)
    losses = [
        training_loss(modality, [states], targets, weights),
        modality.loss(modality.top(states), targets, weights),
    ]
    torch.testing.assert_close(*losses)
    by = [states, modality.top.weight]
    first, second = [torch.autograd.grad(loss.sum, by) for loss in losses]
    torch.testing.assert_close(first, second)


class LargestTensor(TorchDispatchMode):
    """Remembers the numbers of the largest tensor that is made inside."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Runs an operation and looks at what it makes."""
        made = function(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return made


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_logits_of_a_large_vocabulary_are_never_there_all_at_once(settings, monkeypatch):
    tokens, vocabulary = 64, 3000
    monkeypatch.setattr(module, "_CHUNK_BYTES", 4 * 4 * vocabulary)
    text = Text(IntegerEncoder(vocabulary - 2))
    features = Features({"inputs": text}, {"targets": text})
    model = registry.model("transformer")(HPARAMS.replace(**settings), features).train()
    teacher = None
    if "distill_from" in settings:
        teacher = registry.model("transformer")(HPARAMS, features)
    objective = Objective(model, teacher)
    batch = {name: torch.randint(2, vocabulary, (4, tokens // 4)) for name in features.all}
    with LargestTensor() as largest:
        objective(batch).losses["targets"].sum.backward()
    assert largest.numbers < 0.5 * tokens * vocabulary
    assert largest.numbers >= vocabulary * HPARAMS.hidden_size  # the table and its gradient


def model_of(kind, hparams):
    """A model of the first made-up features with a target of a kind."""
    name = "transformer" if kind is Text else "transformer_encoder"
    model_class: type[T2TModel] = registry.model(name)
    features = next(
        f for f in testing.features_for(model_class) if type(f.targets["targets"]) is kind
    )
    torch.manual_seed(0)
    return model_class(hparams, features), testing.random_batch(features)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_a_second_pass_differs_by_its_dropout_alone(kind):
    hparams = (HPARAMS if kind is Text else ENCODER).replace(
        layer_prepostprocess_dropout=1e-5, attention_dropout=0.0, relu_dropout=0.0, symbol_dropout=0
    )
    plain, batch = model_of(kind, hparams)
    model, _ = model_of(kind, hparams.replace(r_drop_alpha=3.0))
    loss, other = (Objective(m)(batch).losses["targets"] for m in (model, plain))
    torch.testing.assert_close(loss, other, rtol=1e-3, atol=1e-3)
    hparams = hparams.replace(layer_prepostprocess_dropout=0.3)
    alphas = [0.01, 100.0]
    losses = []
    for alpha in alphas:
        model, _ = model_of(kind, hparams.replace(r_drop_alpha=alpha))
        torch.manual_seed(1)
        losses.append(Objective(model)(batch).losses["targets"].sum)
    assert losses[1] > losses[0]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_a_teacher_is_no_part_of_the_student_and_is_left_alone(kind):
    hparams = HPARAMS if kind is Text else ENCODER
    student, batch = model_of(kind, hparams.replace(distill_from="run", distill_weight=1.0))
    names = [*student.state_dict()]
    teacher, _ = model_of(kind, hparams)
    for parameter in teacher.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    objective = Objective(student, teacher.train())
    assert [*student.state_dict()] == names
    assert {id(p) for p in student.parameters()}.isdisjoint(map(id, teacher.parameters()))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = objective(batch).losses["targets"]
        (loss.sum / loss.weight).backward()
        optimizer.step()
        losses.append(float(loss.sum.detach() / loss.weight))
    assert losses[-1] < losses[0]
    assert not teacher.training
    assert all(p.grad is None and not p.requires_grad for p in teacher.parameters())
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())


def test_in_evaluation_the_loss_is_the_loss_alone():
    added = {"confidence_penalty": 0.5, "r_drop_alpha": 2.0, "distill_from": "run"}
    plain, batch = model_of(ClassLabel, ENCODER)
    model, _ = model_of(ClassLabel, ENCODER.replace(**added))
    objective = Objective(model, model_of(ClassLabel, ENCODER)[0])
    losses = [m.eval()(batch).losses["targets"] for m in (objective, plain)]
    torch.testing.assert_close(*losses, rtol=0, atol=0)


@pytest.mark.parametrize("field", ["confidence_penalty", "r_drop_alpha"])
def test_what_needs_probabilities_is_refused_of_numbers(field):
    with pytest.raises(HParamsError, match=f"{field}.*'targets' is a Real"):
        check_objective(HParams().replace(**{field: 0.1}), features_of(Real))


def test_r_drop_without_dropout_is_refused():
    with pytest.raises(HParamsError, match="symbol_dropout, lora_dropout are 0"):
        hparams = HParams().replace(r_drop_alpha=1.0, layer_prepostprocess_dropout=0.0)
        check_objective(hparams, features_of(ClassLabel))


def test_padding_changes_no_addition():
    settings = {"confidence_penalty": 0.3, "r_drop_alpha": 1.0, "distill_from": "run"}
    modality = modality_of(Text, layer_prepostprocess_dropout=0.1, **settings).train()
    _, targets = batch_of(Text)
    states = [torch.randn(*targets.shape, 6) for _ in range(3)]

    def loss(targets, first, second, taught):
        output = TeacherOutput(Hidden(taught), modality.logits)
        return training_loss(modality, [first, second], targets, None, output, **settings)

    padded = F.pad(targets, (0, 2))
    more = [F.pad(one, (0, 0, 0, 2), value=3.0) for one in states]
    torch.testing.assert_close(loss(padded, *more), loss(targets, *states))
    halves = [loss(targets[i::2], *(one[i::2] for one in states)) for i in (0, 1)]
    torch.testing.assert_close(sum(half.sum for half in halves), loss(targets, *states).sum)
