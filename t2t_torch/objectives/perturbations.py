"""Perturbed token embeddings: noise, and the direction in which the loss grows most.

R3F: Aghajanyan et al. 2020, arXiv:2008.03156.  Adversarial training of texts (FGM): Miyato et al.
2017, arXiv:1605.07725; in several steps (PGD): Madry et al. 2018, arXiv:1706.06083.

Both add to what token embeddings return, in tables of this library and in those of pretrained
modules alike, by a forward hook that is there for the duration of a pass.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import kl_divergence
from t2t_torch.layers.pretrained import PretrainedNetwork
from t2t_torch.loss import average
from t2t_torch.modalities.text import Embedding
from t2t_torch.modalities.words import FrozenLanguageModel
from t2t_torch.text.encoder import PAD

Move = Callable[[int, Tensor], Tensor]
"""Returns what is added to the output of an embedding, given the number of its call in a pass."""


class TokenEmbeddings:
    """The modules of a model that embed ids of texts.

    Args:
      model: the model.
      settings: hyperparameters that need them, for messages.

    Raises:
      HParamsError: there are none.
    """

    def __init__(self, model: nn.Module, settings: str) -> None:
        frozen: set[nn.Module] = set()
        tables: list[nn.Module] = []
        for module in model.modules():
            if isinstance(module, FrozenLanguageModel):
                frozen.update(module.modules())
            elif type(module) is Embedding:  # a subclass is of pixels
                tables.append(module)
            elif isinstance(module, PretrainedNetwork):
                weight = module.inner.get_input_embeddings().weight
                inner = module.inner.modules()  # an encoder and a decoder may share the weight
                tables += [m for m in inner if isinstance(m, nn.Embedding) and m.weight is weight]
        self._tables = [table for table in tables if table not in frozen]
        self._missing = HParamsError(
            f"{settings}: changes the embeddings of tokens, and this {type(model).__name__} embeds "
            "none. Leave it out."
        )
        if not self._tables:
            raise self._missing

    @contextlib.contextmanager
    def moved(self, move: Move) -> Iterator[None]:
        """Adds `move` to the output of each call of an embedding, except at padding.

        Raises:
          HParamsError: no embedding was called.
        """
        calls = itertools.count()

        def hook(table: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            added = move(next(calls), output)
            if isinstance(table, Embedding):  # a pretrained module masks padding by itself
                added = added * (inputs[0] != PAD)[..., None]
            return output + added

        handles = [table.register_forward_hook(hook) for table in self._tables]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if not next(calls):
            raise self._missing


def noise(hparams: HParams, call: int, output: Tensor) -> Tensor:
    """Returns noise in the shape of the output of an embedding; a `Move` of R3F.

    Args:
      hparams: r3f_noise, r3f_epsilon.
      call: number of the call.
      output: the embeddings.
    """
    made = torch.empty_like(output)
    size = hparams.r3f_epsilon
    return made.normal_(0.0, size) if hparams.r3f_noise == "normal" else made.uniform_(-size, size)


def divergence(weight: float, scores: Sequence[Tensor], axes: int) -> Tensor:
    """Returns the symmetric divergence of two passes for each item.

    Args:
      weight: factor.
      scores: scores of mutually exclusive values in both passes, [..., V].
      axes: number of leading axes that index items.
    """
    first, second = scores
    both = kl_divergence(first, second) + kl_divergence(second, first)
    return weight * average([both], axes)


class Adversary:
    """Perturbation of embeddings that increases the loss, of bounded L2 norm for each example.

    Args:
      embeddings: token embeddings of the model.
      hparams: adversarial_*.
    """

    def __init__(self, embeddings: TokenEmbeddings, hparams: HParams) -> None:
        self._embeddings = embeddings
        self._steps, self._most = hparams.adversarial_steps, hparams.adversarial_epsilon
        self._size = self._most if self._steps == 1 else hparams.adversarial_step_size
        self._moves: list[Tensor] = []  # of each call in the pass

    @contextlib.contextmanager
    def watching(self, moves: Sequence[Tensor] = ()) -> Iterator[None]:
        """Adds `moves` in a pass, zeros by default; gradients are taken with respect to them."""
        self._moves = []

        def move(call: int, output: Tensor) -> Tensor:
            value = moves[call] if moves else torch.zeros_like(output)
            self._moves.append(value.detach().requires_grad_())
            return self._moves[-1]

        with self._embeddings.moved(move):
            yield

    def loss(self, clean: Tensor, perturbed: Callable[[], Tensor]) -> Tensor:
        """Returns the loss of the perturbed pass.

        Args:
          clean: the loss of the pass under `watching`, whose graph is kept.
          perturbed: computes the same loss by another pass.
        """
        moves, loss = self._climbed(clean, keep=True), clean
        for left in range(self._steps, 0, -1):
            move: Move = functools.partial(lambda moves, call, _: moves[call], moves)
            with self.watching(moves) if left > 1 else self._embeddings.moved(move):
                loss = perturbed()
            if left > 1:
                moves = self._climbed(loss, keep=False)
        self._moves = []
        return loss

    def _climbed(self, loss: Tensor, *, keep: bool) -> list[Tensor]:
        """Returns the moves after a step along the gradient, back in the ball around zero."""
        gradients = torch.autograd.grad(
            loss, self._moves, retain_graph=keep, materialize_grads=True
        )
        steps = [
            one + self._size * (its / _norms(its))
            for one, its in zip(self._moves, gradients, strict=True)
        ]
        return [(one * (self._most / _norms(one)).clamp(max=1.0)).detach() for one in steps]


def _norms(values: Tensor) -> Tensor:
    """Returns the L2 norm of each example, not 0.  [B, ...] -> [B, 1, ...]."""
    norms: Tensor = torch.linalg.vector_norm(values.flatten(1).float(), dim=1).clamp(min=1e-12)
    return norms.view(-1, *[1] * (values.dim() - 1))
