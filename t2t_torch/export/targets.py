"""Export targets: models of labels and models of texts, their tracing and signature."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from t2t_torch.data.shards import Shards
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.speech_predictor import SpeechPredictor
from t2t_torch.distributed.precision import in_float32
from t2t_torch.errors import ExportError
from t2t_torch.export.answers import add_answers, span_targets
from t2t_torch.export.attention import add_attention
from t2t_torch.export.encoders import check_decodable, decoded_hypotheses
from t2t_torch.export.graph import Graph, Proxy
from t2t_torch.export.network import export_network
from t2t_torch.export.quantization import metrics_of, quantize
from t2t_torch.export.search import (
    AttentionNetwork,
    Search,
    SearchNetworks,
    add_search,
    export_search,
)
from t2t_torch.export.text_graph import InputGraph
from t2t_torch.export.verification import (
    LabelComparison,
    RowSource,
    TextComparison,
    VerificationRow,
    Verified,
    rows_of,
    stored,
    verify_rows,
)
from t2t_torch.features import Feature, Features, InputSpec, OutputSpec
from t2t_torch.features.feature import find_alignments, select_sequences, select_texts
from t2t_torch.metrics.text_scores import score, scores_of
from t2t_torch.mode import Split
from t2t_torch.pipeline.reader import LengthLimits
from t2t_torch.problem import Problem
from t2t_torch.runtime.feeds import attention_names, wanted_name
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.runtime.session import Artifact
from t2t_torch.text.encoder import EOS, NUM_RESERVED, TextEncoder

_SHORTEST = 3  # minimum length in ids for tracing; 1 would be fixed in the graph


def example_of(predictor: LabelPredictor, rows: Sequence[VerificationRow]) -> dict[str, Tensor]:
    """Returns a batch of two rows with lengths that tracing does not fix in the graph.

    Shorter sequences are padded.

    Args:
      predictor: predictor of the model.
      rows: rows of the data.
    """
    of_data = [row for row in rows if row.number >= 0] or rows
    samples = sorted(
        (row.sample for row in of_data),
        key=lambda sample: sum(len(one) for one in sample.values() if isinstance(one, str | list)),
    )
    batch = predictor.batch_of([samples[len(samples) // 3], samples[len(samples) // 2]])
    for name in select_sequences(predictor.features.all):
        if name in batch and (missing := _SHORTEST - batch[name].size(1)) > 0:
            padding = [0, 0] * (batch[name].dim() - 2) + [0, missing]
            batch[name] = nn.functional.pad(batch[name], padding)
    return batch


def signature_fields(predictor: LabelPredictor) -> tuple[InputSpec, ...]:
    """Returns the inputs of an artifact.

    Raises:
      ExportError: a field is not supported as an input of a graph.
    """
    return tuple(_field(predictor, name, kind) for name, kind in predictor.kinds.items())


def _field(predictor: LabelPredictor, name: str, kind: Feature) -> InputSpec:
    features, spec = predictor.features, predictor.specs[name]
    if spec.kind == "value":
        raise ExportError(
            f"the field {name!r} is a {type(kind).__name__}, which a graph cannot be given yet. "
            "Train on a problem without it, or answer with  t2t-decoder"
        )
    if name not in select_texts(predictor.kinds):
        return spec
    own = next(n for n, feature in features.all.items() if feature is kind)
    longest = predictor.limits.by_feature.get(own, 0)
    # A word may have several ids; then the graph itself fails if there are too many.
    tagged = own in find_alignments(features.targets).values() and own not in features.word_starts
    of_spans = [features.targets[span].refers_to for span in span_targets(features)]
    if name not in predictor.lists and own in of_spans:
        longest = 0  # of a text that is split into windows each is truncated, not the text
    return dataclasses.replace(spec, longest=longest, tagged=tagged)


class LabelExportTarget:
    """Export target for models of `LabelPredictor`; also the interface of the others.

    Args:
      loaded: the model; it is converted to float32.

    Attributes:
      predictor: predictor that the artifact is compared with.

    Raises:
      ExportError: a field or feature is not supported in a graph; names it.
    """

    def __init__(self, loaded: Loaded) -> None:
        model = in_float32(loaded.model)
        self.predictor = LabelPredictor(model, loaded.problem, loaded.features, loaded.info)
        self._inputs(Graph("fields")).encoded()  # raises early, before the tracing

    def _inputs(self, graph: Graph) -> InputGraph:
        predictor = self.predictor
        return InputGraph(graph, predictor.problem, predictor.features, predictor.limits)

    def rows(self, data_dir: Path | None, count: int) -> list[VerificationRow]:
        """Returns rows of the dev split as inputs, and synthetic ones; only these without data.

        Raises:
          DataError: there is no such data.
        """
        return rows_of(self.predictor, data_dir, count)

    def network(self, rows: Sequence[VerificationRow]) -> onnx.ModelProto:
        """Returns the network: the part of the graph that uses the model's weights.

        Args:
          rows: rows of the data for tracing.

        Raises:
          ExportError: the model cannot be exported as a graph.
        """
        return export_network(self.predictor.model, example_of(self.predictor, rows))

    def quantized(self, network: Any) -> Any:
        """Returns a network with int8 weights."""
        return quantize(network)

    def graph(self, network: Any) -> Graph:
        """Returns the whole graph from fields to predictions."""
        graph = Graph(self.predictor.problem.full_name)
        inputs = self._inputs(graph)
        outputs = graph.inline(network, inputs.encoded())
        add_answers(graph, self.predictor.features, outputs, inputs.windows)
        return graph

    def signature_parts(self) -> dict[str, Any]:
        """Returns the `fields` and `targets` of the signature, and `search` of a text."""
        features = self.predictor.features
        targets = tuple(one.output_spec(name, features) for name, one in features.targets.items())
        return {"fields": signature_fields(self.predictor), "targets": targets}

    def verify(self, artifact: Artifact, rows: Sequence[VerificationRow]) -> Verified:
        """Compares the predictions of the artifact with those of the model for all rows.

        Raises:
          ExportError: they differ; contains the first such row and both predictions.
        """
        return verify_rows(LabelComparison(self.predictor), artifact, rows)

    def metrics(self, data_dir: Path, predictions: Mapping[int, Any]) -> dict[str, float]:
        """Returns the metrics of predictions.

        Args:
          data_dir: folder of the generated data.
          predictions: predictions by row index in the dev split, ascending.
        """
        return metrics_of(self.predictor, data_dir, list(predictions), list(predictions.values()))


def _add_texts(
    graph: Graph, name: str, encoder: TextEncoder, ids: Proxy, scores: Proxy, count: int
) -> None:
    """Adds the outputs of a target that is a text: `count` hypotheses with scores and ids."""
    axes: list[int | str | None] = ["batch", count]
    graph.output(name, decoded_hypotheses(encoder, ids), "string", axes)
    graph.output(f"{name}_scores", scores, "float32", axes)
    graph.output(f"{name}_ids", ids, "int64", [*axes, None])


def _scores(
    problem: Problem, features: Features, data_dir: Path, predictions: Mapping[int, Prediction]
) -> Mapping[str, Any]:
    """Returns the scores of the texts of predictions, by row of the dev split."""
    ((name, feature),) = features.targets.items()
    shards = Shards.open(data_dir, problem.dataset_name, Split.EVAL)
    rows = stored(shards, features.columns[name], list(predictions))
    outputs = [prediction.text for prediction in predictions.values()]
    return score(outputs, [feature.decode(ids) for ids in rows], scores_of(features))


class CtcExportTarget(LabelExportTarget):
    """Export target for models with an output for each frame of a sound.

    The graph writes the likeliest path of each sound, and its log-probability as the score.

    Args:
      loaded: the model; it is converted to float32.
      hparams: decoding options; a graph reads none.

    Raises:
      ExportError: a field is not supported in a graph, or a graph cannot write the target text.
      HParamsError: `hparams` has options that a graph does not support.
    """

    def __init__(self, loaded: Loaded, hparams: DecodeHParams) -> None:
        hparams.check_read(("beam_size",), "a graph of CTC, which is greedy,")
        super().__init__(loaded)
        (self._target,) = loaded.features.targets
        written: Any = loaded.features.targets[self._target]
        check_decodable(self._target, written.encoder)
        self._writes = written
        greedy = hparams.replace(beam_size=1)
        arguments = self.predictor.model, loaded.problem, loaded.features, greedy, loaded.info
        self._texts = SpeechPredictor(*arguments)

    def graph(self, network: Any) -> Graph:
        """See `LabelExportTarget.graph`."""
        graph = Graph(self.predictor.problem.full_name)
        outputs = graph.inline(network, self._inputs(graph).encoded())
        ids = outputs[f"{self._target}.numbers"].Unsqueeze([1])
        scores = outputs[f"{self._target}.scores"].Unsqueeze([1])
        _add_texts(graph, self._target, self._writes.encoder, ids, scores, 1)
        return graph

    def signature_parts(self) -> dict[str, Any]:
        """See `LabelExportTarget.signature_parts`."""
        return {
            "fields": signature_fields(self.predictor),
            "targets": (OutputSpec(self._target, "text", size=1),),
            "search": {"beam_size": 1},
        }

    def verify(self, artifact: Artifact, rows: Sequence[VerificationRow]) -> Verified:
        """See `LabelExportTarget.verify`."""
        return verify_rows(TextComparison(self._texts), artifact, rows)

    def metrics(self, data_dir: Path, predictions: Mapping[int, Prediction]) -> dict[str, float]:
        """See `LabelExportTarget.metrics`: the share of right words and characters."""
        problem, features = self.predictor.problem, self.predictor.features
        scores = _scores(problem, features, data_dir, predictions)
        return {f"1 - {name}": 1.0 - one.value for name, one in scores.items()}


READ = (
    *("beam_size", "alpha", "length_offset", "length_scale", "search_rules", "early_stopping"),
    *("extra_length", "extra_length_ratio", "max_length", "force_eos", "force_decode_length"),
    "return_beams",
)
"""Decode hyperparameters of a graph's search."""

_OF_SIGNATURE = ("beam_size", "alpha", "extra_length", "force_decode_length", "return_beams")
"""Those of them that a signature has even with their defaults."""

OF_ALIGNMENTS = ("write_alignments", "alignment_step", "alignment_layer")
"""Decode hyperparameters of the alignments."""

PROMPT = "prompt"
"""Input name of a language model: a graph's input and output must have different names."""

_PROMPT_WORDS = 8  # words of a text of the data that are the prompt of a language model
_PROMPT_LENGTH = 300  # maximum characters of a prompt


class TextExportTarget:
    """Export target for models of `Predictor`, which generate texts.

    Args:
      loaded: the model; it is converted to float32.
      hparams: decoding options.

    Raises:
      ExportError: an input is used outside the network, or a graph cannot write the target text.
      HParamsError: `hparams` has options that a graph's search does not support.
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
        if not features.has_inputs:  # a prompt is an unfinished text
            cutter = self._cutters.get(self._field)
            self._cutters = {} if cutter is None else {PROMPT: cutter}
            self._field = PROMPT
            self._given = {PROMPT: dataclasses.replace(read, add_eos=False)}
        if hparams.write_alignments:
            self._predictor.aligner()  # raises if the model has none
            check_decodable(self._reads, read.encoder)
        self._search = Search(features.has_inputs, self._predictor.vocab_size, hparams)

    def rows(
        self, data_dir: Path | None, count: int, split: Split = Split.EVAL
    ) -> list[VerificationRow]:
        """See `LabelExportTarget.rows`; a language model continues the first words of texts."""
        features = self._loaded.features
        read = features.all[self._reads]
        kinds = {read.source or self._reads: read}
        question = RowSource(self._loaded.problem, features, kinds, LengthLimits())
        rows = rows_of(question, data_dir, count, split)
        if features.has_inputs:
            return rows
        return [row._replace(sample={PROMPT: _beginning(row)}) for row in rows]

    def network(self, rows: Sequence[VerificationRow]) -> SearchNetworks:
        """Returns the search networks, from ids to ids."""
        return export_search(self._predictor.model, self._search, self._example)

    def _example(self, rows: int, length: int) -> dict[str, Tensor]:
        """Returns example ids of input texts, [rows, length]."""
        size = self._loaded.features.all[self._reads].vocab_size
        known = torch.arange(rows * length) % (size - NUM_RESERVED)
        ids = known.view(rows, length) + NUM_RESERVED
        if self._search.has_inputs:
            ids[:, -1] = EOS
        return {self._reads: ids}

    def quantized(self, network: Any) -> Any:
        """See `LabelExportTarget.quantized`; a language model's first network has no weights."""
        step = quantize(network.step)
        if not self._search.has_inputs:
            return network._replace(step=step)
        reads = network.attention
        if reads is not None:
            reads = reads._replace(step=quantize(reads.step))
        return network._replace(first=quantize(network.first), step=step, attention=reads)

    def graph(self, network: Any) -> Graph:
        """See `LabelExportTarget.graph`."""
        loaded = self._loaded
        graph = Graph(loaded.problem.full_name)
        arguments = loaded.problem, loaded.features, LengthLimits(), self._given, self._cutters
        (read,) = InputGraph(graph, *arguments).encoded().values()
        ids, scores, initial = add_search(graph, network, {self._reads: read})
        encoder = self._writes.encoder
        _add_texts(graph, self._target, encoder, ids, scores, self._search.outputs)
        if network.attention is not None:
            self._add_attention(graph, network.attention, initial, (read, ids))
        return graph

    def _add_attention(
        self,
        graph: Graph,
        network: AttentionNetwork,
        initial: Mapping[str, Proxy],
        ids: tuple[Proxy, Proxy],
    ) -> None:
        """Adds the attention outputs, and the input that enables them."""
        read: Any = self._loaded.features.all[self._reads]
        encoders = read.encoder, self._writes.encoder
        wanted = graph.optional(wanted_name(self._target), True)
        outputs = add_attention(graph, network, initial, ids, encoders, wanted)
        weights, of_read, of_written = attention_names(self._target)
        axes: list[int | str | None] = ["batch", self._search.outputs]
        graph.output(weights, outputs.weights, "float32", [*axes, None, None])
        graph.output(of_read, outputs.read, "string", ["batch", None])
        graph.output(of_written, outputs.written, "string", [*axes, None])

    def signature_parts(self) -> dict[str, Any]:
        """See `LabelExportTarget.signature_parts`."""
        hparams = self._search.hparams
        read = [name for name in READ if name in _OF_SIGNATURE or hparams.is_changed(name)]
        read += OF_ALIGNMENTS if hparams.write_alignments else ()
        return {
            "fields": (InputSpec(self._field, "text"),),
            "targets": (OutputSpec(self._target, "text", size=self._search.outputs),),
            "search": {name: getattr(hparams, name) for name in read},
        }

    def verify(self, artifact: Artifact, rows: Sequence[VerificationRow]) -> Verified:
        """See `LabelExportTarget.verify`."""
        return verify_rows(TextComparison(self._predictor), artifact, rows)

    def metrics(self, data_dir: Path, predictions: Mapping[int, Prediction]) -> dict[str, float]:
        """See `LabelExportTarget.metrics`.

        Raises:
          ExportError: there are no references for the outputs.
        """
        if not self._search.has_inputs:
            raise ExportError(
                "of a language model there is no right output, so that it cannot be said whether "
                "int8 writes as well. Leave --quantize out."
            )
        loaded = self._loaded
        scores = _scores(loaded.problem, loaded.features, data_dir, predictions)
        # BLEU and chrF are percentages; the comparison uses fractions.
        return {f"decode/{name}": one.value / 100.0 for name, one in scores.items()}


def check_writes(loaded: Loaded) -> None:
    """Checks that a graph can search for a model's texts.

    Raises:
      ExportError: it cannot; contains the reason.
    """
    features, name = loaded.features, loaded.info.task.model
    kinds: dict[str, str] = {}
    kinds |= {n: one.input_spec(n, features).kind for n, one in features.inputs.items()}
    kinds |= {n: one.output_spec(n, features).kind for n, one in features.targets.items()}
    odd = [features.all[n] for n, kind in kinds.items() if kind not in ("text", "words")]
    if name == "rnng" or odd:
        why = f"reads or writes a {type(odd[0]).__name__}" if odd else "writes a tree"
        raise ExportError(
            f"the model {name!r} of {loaded.problem.full_name!r} {why}: the graph of a search goes "
            "from one text to another. This model answers with  t2t-decoder"
        )
    if not getattr(getattr(loaded.model, "hparams", None), "predict_first", True):
        raise ExportError(
            "a graph of a language model predicts its first id, and predict_first=False. Serve the "
            "run with PyTorch:  t2t-server --output_dir=RUN"
        )


def _beginning(row: VerificationRow) -> str:
    """Returns a prompt from a text of the data or a synthetic one."""
    (text,) = row.sample.values()
    words = text if isinstance(text, list) else text.split(" ")
    return " ".join(words[:_PROMPT_WORDS] if row.number >= 0 else words)[:_PROMPT_LENGTH]
