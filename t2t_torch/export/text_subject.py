"""What writes texts, on its way to an artifact: its search goes into the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from t2t_torch.artifact.alignment import attention_names, wanted_name
from t2t_torch.artifact.prediction import Prediction
from t2t_torch.artifact.session import Artifact
from t2t_torch.artifact.signature import Field, Signature, Target
from t2t_torch.compute.precision import in_float32
from t2t_torch.data.shards import Shards
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.scoring import score, scores_of
from t2t_torch.errors import ExportError
from t2t_torch.export.attention_graph import add_attention
from t2t_torch.export.attention_network import AttentionNetwork
from t2t_torch.export.decoded import check_decodable, decoded_hypotheses
from t2t_torch.export.graph import OPSETS, Graph
from t2t_torch.export.quantization import quantize
from t2t_torch.export.search_graph import add_search
from t2t_torch.export.search_network import Search, SearchNetworks, export_search
from t2t_torch.export.signature import about, with_extensions
from t2t_torch.export.subject import Subject
from t2t_torch.export.text_graph import encode
from t2t_torch.export.text_verification import verify_texts
from t2t_torch.export.verification import Row, Verified, rows_of, stored
from t2t_torch.features import Feature, Features, Text, Words
from t2t_torch.mode import Split
from t2t_torch.pipeline.lengths import Limits
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import EOS, NUM_RESERVED

READ = ("beam_size", "alpha", "extra_length", "force_decode_length", "return_beams")
"""What of the decode hyperparameters a graph's search is made by."""

OF_ALIGNMENTS = ("write_alignments", "alignment_step", "alignment_layer")
"""What of them says whether, and how, it is told which word comes from which."""

PROMPT = "prompt"
"""The input of what goes on with a text: a graph's input has another name than its output."""

_PROMPT_WORDS = 8  # of a text of the data that a language model is to go on with
_PROMPT_LENGTH = 300  # characters of any


class _Asked(NamedTuple):
    """What rows are made of; as a `LabelPredictor` has it."""

    problem: Problem
    features: Features
    kinds: Mapping[str, Feature]
    limits: Limits


class TextSubject(Subject):
    """A model whose texts a `Predictor` finds.

    Args:
      loaded: the model; it computes in float32 from now on.
      hparams: how to decode.

    Raises:
      ExportError: it is asked something that is read outside the network, or writes a text that a
        graph cannot.
      HParamsError: `hparams` has set what a graph's search does not read.
    """

    def __init__(self, loaded: Loaded, hparams: DecodeHParams) -> None:
        hparams.check_read((*READ, *OF_ALIGNMENTS), "the search in a graph")
        self._loaded = loaded
        self._predictor = Predictor(
            in_float32(loaded.model), loaded.problem, loaded.features, hparams, loaded.info
        )
        features = loaded.features
        (self._target,) = features.targets
        written: Any = features.targets[self._target]
        check_decodable(self._target, written.encoder)
        self._writes = written
        self._reads = next(iter(features.inputs)) if features.has_inputs else self._target
        read: Any = features.all[self._reads]
        self._field = read.source or self._reads
        self._given: dict[str, Feature] = {self._reads: read}
        self._cutters = loaded.problem.cutters
        if not features.has_inputs:  # a prompt is a text that has not ended
            cutter = self._cutters.get(self._field)
            self._cutters = {} if cutter is None else {PROMPT: cutter}
            self._field = PROMPT
            self._given = {PROMPT: dataclasses.replace(read, add_eos=False)}
        if hparams.write_alignments:
            self._predictor.aligner()  # raises if the model has none
            check_decodable(self._reads, read.encoder)
        self._search = Search(features.has_inputs, self._predictor.vocab_size, hparams)

    def rows(self, data_dir: Path, count: int, split: Split = Split.EVAL) -> list[Row]:
        """See `Subject.rows`; what a language model goes on with are the first words of texts."""
        features = self._loaded.features
        read = features.all[self._reads]
        kinds = {read.source or self._reads: read}
        asked = _Asked(self._loaded.problem, features, kinds, Limits())
        rows = rows_of(asked, data_dir, count, split)
        if features.has_inputs:
            return rows
        return [row._replace(sample={PROMPT: _beginning(row)}) for row in rows]

    def network(self, rows: Sequence[Row]) -> SearchNetworks:
        """Returns the search by itself: ids in, ids out."""
        return export_search(self._predictor.model, self._search, self._example)

    def _example(self, rows: int, length: int) -> dict[str, Tensor]:
        """Returns ids of texts that may be read, [rows, length]."""
        size = self._loaded.features.all[self._reads].vocab_size
        known = torch.arange(rows * length) % (size - NUM_RESERVED)
        ids = known.view(rows, length) + NUM_RESERVED
        if self._search.has_inputs:
            ids[:, -1] = EOS
        return {self._reads: ids}

    def quantized(self, network: SearchNetworks) -> SearchNetworks:
        """See `Subject.quantized`; of a language model, what begins the search has no weights."""
        step = quantize(network.step)
        if not self._search.has_inputs:
            return network._replace(step=step)
        reads = network.attention
        if reads is not None:
            reads = reads._replace(step=quantize(reads.step))
        return network._replace(first=quantize(network.first), step=step, attention=reads)

    def graph(self, network: SearchNetworks) -> Graph:
        """See `Subject.graph`."""
        loaded = self._loaded
        graph = Graph(loaded.problem.full_name)
        given = encode(graph, loaded.problem, loaded.features, Limits(), self._given, self._cutters)
        (read,) = given.values()
        ids, scores, begun = add_search(graph, network, {self._reads: read})
        texts = decoded_hypotheses(graph, self._writes.encoder, ids)
        axes: list[int | str | None] = ["batch", self._search.outputs]
        graph.output(self._target, texts, "string", axes)
        graph.output(f"{self._target}_scores", scores, "float32", axes)
        graph.output(f"{self._target}_ids", ids, "int64", [*axes, None])
        if network.attention is not None:
            self._add_attention(graph, network.attention, begun, (read, ids))
        return graph

    def _add_attention(
        self,
        graph: Graph,
        network: AttentionNetwork,
        begun: Mapping[str, str],
        ids: tuple[str, str],
    ) -> None:
        """Adds the outputs that tell what words look at, and what asks for them."""
        read: Any = self._loaded.features.all[self._reads]
        encoders = read.encoder, self._writes.encoder
        wanted = graph.optional(wanted_name(self._target), True)
        told = add_attention(graph, network, begun, ids, encoders, wanted)
        weights, of_read, of_written = attention_names(self._target)
        axes: list[int | str | None] = ["batch", self._search.outputs]
        graph.output(weights, told.weights, "float32", [*axes, None, None])
        graph.output(of_read, told.read, "string", ["batch", None])
        graph.output(of_written, told.written, "string", [*axes, None])

    def signature(self, chosen: str, *, needs_extensions: bool) -> Signature:
        """See `Subject.signature`."""
        hparams = self._search.hparams
        told = (*READ, *OF_ALIGNMENTS) if hparams.write_alignments else READ
        found = dataclasses.replace(
            about(self._loaded, chosen),
            fields=(Field(self._field, "text"),),
            targets=(Target(self._target, "text", size=self._search.outputs),),
            search={name: getattr(hparams, name) for name in told},
            opset=OPSETS[""],
        )
        return with_extensions(found) if needs_extensions else found

    def verify(self, artifact: Artifact, rows: Sequence[Row]) -> Verified:
        """See `Subject.verify`."""
        return verify_texts(self._predictor, artifact, rows)

    def metrics(self, data_dir: Path, found: Mapping[int, Prediction]) -> dict[str, float]:
        """See `Subject.metrics`.

        Raises:
          ExportError: there is nothing that outputs could be compared with.
        """
        if not self._search.has_inputs:
            raise ExportError(
                "of a language model there is no right output, so that it cannot be said whether "
                "int8 writes as well. Leave --quantize out."
            )
        features, problem = self._loaded.features, self._loaded.problem
        shards = Shards.open(data_dir, problem.dataset_name, Split.EVAL)
        right = stored(shards, features.columns[self._target], list(found))
        references = [self._writes.decode(ids) for ids in right]
        outputs = [prediction.text for prediction in found.values()]
        scores = score(outputs, references, scores_of(features))
        # BLEU and chrF are told in points of a hundred; what is compared are shares.
        return {f"decode/{name}": one.value / 100.0 for name, one in scores.items()}


def check_writes(loaded: Loaded) -> None:
    """Checks that a model's text can be found by a search in a graph.

    Raises:
      ExportError: it cannot; says why.
    """
    features, name = loaded.features, loaded.info.task.model
    odd = [f for f in (*features.inputs.values(), *features.targets.values()) if not _is_text(f)]
    if name == "rnng" or odd:
        why = f"reads or writes a {type(odd[0]).__name__}" if odd else "writes a tree"
        raise ExportError(
            f"the model {name!r} of {loaded.problem.full_name!r} {why}: the graph of a search goes "
            "from one text to another. This model answers with  t2t-decoder"
        )


def _is_text(feature: Feature) -> bool:
    return type(feature) in (Text, Words)


def _beginning(row: Row) -> str:
    """Returns a prompt, of a text of the data or of one that is made up."""
    (text,) = row.sample.values()
    words = text if isinstance(text, list) else text.split(" ")
    return " ".join(words[:_PROMPT_WORDS] if row.number >= 0 else words)[:_PROMPT_LENGTH]
