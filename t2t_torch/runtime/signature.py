"""Metadata of an artifact: `signature.json`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from t2t_torch.errors import ArtifactError
from t2t_torch.features.feature import InputKind, InputSpec, OutputKind, OutputSpec
from t2t_torch.files import open_regular, path_inside, read_json

FILE = "signature.json"
MODEL = "model.onnx"
EXAMPLES = "examples.jsonl"
EXPORTS, LATEST = "export", "latest"
"""Names of a run's folder of artifacts, and in it of the link to the newest, or of a file with the
name of the newest."""
ONNX, TORCH, SAFETENSORS, CTRANSLATE2 = "onnx", "torch", "safetensors", "ctranslate2"
HUGGINGFACE, ADAPTER = "huggingface", "adapter"

FORMAT = 5
"""The newest supported version of `signature.json`.  2 added alignments and kinds of fields and
targets; 3 added the checksum of `signature.json` itself; 4 added tokenizers and names of columns; 5
their forms.  Without these it is written as 3 or 4, which older versions of the package read."""

_SHA256 = "sha256"  # the key of that checksum
_CHECKED_SINCE = 3

_NEWER = frozenset({"tokenizer", "column_names", "column_forms", "nesting", "shape", "dtype"})

_INPUT_KINDS = tuple(kind for kind in get_args(InputKind) if kind != "value")
_OUTPUT_KINDS = tuple(kind for kind in get_args(OutputKind) if kind != "tree")
"""Kinds of inputs and outputs of a graph."""


@dataclasses.dataclass(frozen=True)
class FileChecksum:
    """Size and checksum of a file of an artifact.

    Attributes:
      bytes: size in bytes.
      sha256: SHA-256 of the content, in hexadecimal digits.
    """

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileChecksum:
        """Returns the size and checksum of a file."""
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256")
        return cls(path.stat().st_size, digest.hexdigest())


@dataclasses.dataclass(frozen=True)
class Signature:
    """Contents of `signature.json`.

    Attributes:
      problem: name of the problem.
      model: registered name of the model.
      step: step of the checkpoint.
      checkpoint: choice of the checkpoint: "step 500", "mean of steps 400, 500".
      created: time of the export, UTC, ISO 8601.
      fields: inputs of the graph, in the order of the input's fields.
      targets: targets of the graph's outputs.
      needs_extensions: True if the graph has operators of onnxruntime-extensions.
      quantized: "int8", or "" if the weights are not quantized.
      opset: opset version of the graph.
      made_with: versions of the libraries used for the export.
      files: all other files of the artifact, by name.
      form: format of the weights: "onnx", the graph; "torch", a program of torch.export;
        "safetensors", the weights alone; "adapter", those that were trained; or "ctranslate2", a
        model of that engine.  Only "onnx" has fields and targets.
      search: settings of the search of a model that generates texts.
      members: run, name and checkpoint of each model of an ensemble.
      column_names: by field or target, the user's name for it.
      column_forms: by field, how its columns are read; see `runtime.prediction.InputColumns`.
      nesting: nesting of the "inputs" and "outputs" of a trial; see `runtime.nesting`.
    """

    problem: str
    model: str
    step: int
    checkpoint: str
    created: str
    fields: Sequence[InputSpec] = ()
    targets: Sequence[OutputSpec] = ()
    needs_extensions: bool = False
    quantized: str = ""
    opset: int = 0
    made_with: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, FileChecksum] = dataclasses.field(default_factory=dict)
    form: str = ONNX
    members: Sequence[str] = ()
    search: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nesting: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    column_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    column_forms: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the JSON; fields that older versions do not know only if they are set."""
        has_tokenizer = any(field.tokenizer for field in self.fields)
        version = 4 if has_tokenizer or self.column_names else _CHECKED_SINCE
        version = FORMAT if self.column_forms else version
        record = {"format_version": version, **dataclasses.asdict(self)}
        for part in (record, *record["fields"], *record["targets"]):
            for name in _NEWER & part.keys():
                if not part[name]:
                    del part[name]
        record[_SHA256] = _checksum(record)
        return json.dumps(record, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Signature:
        """Reads the signature of an artifact.

        Raises:
          ArtifactError: the folder is not an artifact, has a newer version, has a field or target
            of an unknown kind, or its signature is damaged or was modified.
        """
        path = folder / FILE
        try:
            record = read_json(path)
            version = record["format_version"]
        except (FileNotFoundError, NotADirectoryError):
            raise ArtifactError(
                f"'{folder}' is no artifact: it has no {FILE}. Expected a folder that t2t-exporter "
                f"wrote:  t2t-exporter --output_dir=RUN --data_dir=DATA --export_dir={folder}"
            ) from None
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error.strerror or error}.") from None
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from None
        if isinstance(version, int) and version > FORMAT:
            raise ArtifactError(
                f"'{folder}' has the format {version}, and this version of t2t_torch reads up to "
                f"{FORMAT}. Install a newer version from its source (pip install --upgrade .), or "
                "export the run again with this version."
            )
        is_checked = _SHA256 in record or version >= _CHECKED_SINCE
        if is_checked and record.get(_SHA256) != _checksum(record):
            raise ArtifactError(
                f"{path} is not as it was exported: its content does not match the SHA-256 in it. "
                "Copy the artifact again from where it was exported, or export the run again."
            )
        try:
            signature = cls._of(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, error) from None
        fields = (("field", _INPUT_KINDS, one) for one in signature.fields)
        targets = (("target", _OUTPUT_KINDS, one) for one in signature.targets)
        parts: tuple[Any, ...] = (*fields, *targets)
        for what, kinds, one in parts:
            if one.kind not in kinds:
                raise ArtifactError(
                    f"'{folder}' has the {what} {one.name!r} of the kind {one.kind!r}, which this "
                    f"version of t2t_torch does not know; it knows {', '.join(kinds)}. Update it "
                    "(pip install -U t2t_torch), or export the run again with this version."
                )
        return signature

    @classmethod
    def _of(cls, record: dict[str, Any]) -> Signature:
        others = ("format_version", _SHA256)
        signature = cls(
            **{
                **{name: one for name, one in record.items() if name not in others},
                "fields": tuple(_with_tuples(InputSpec, one) for one in record["fields"]),
                "targets": tuple(_with_tuples(OutputSpec, one) for one in record["targets"]),
                "files": {name: FileChecksum(**one) for name, one in record["files"].items()},
                "members": tuple(record.get("members", ())),
            }
        )
        parts: tuple[Any, ...] = (signature, *signature.fields, *signature.targets)
        for part in parts:
            for field in dataclasses.fields(part):
                value = getattr(part, field.name)
                if field.type == "int" and not isinstance(value, int):
                    raise TypeError(f"{field.name} is {value!r}, expected an integer")
        return signature

    def check_files(self, folder: Path) -> None:
        """Checks that the artifact's files are unmodified.

        Raises:
          ArtifactError: files are missing, unreadable or modified; names all of them.
        """
        faults = []
        for name, expected in self.files.items():
            try:
                actual = FileChecksum.of(path_inside(folder, name))
            except OSError as error:
                faults.append(f"{name}: {error.strerror or error}")
                continue
            if actual.bytes != expected.bytes:
                faults.append(f"{name}: {actual.bytes:,} bytes instead of {expected.bytes:,}")
            elif actual != expected:
                faults.append(f"{name}: another content, by its sha256")
        if faults:
            message = "\n  ".join(faults)
            raise ArtifactError(
                f"'{folder}' is not as it was exported:\n  {message}\nCopy it again from where it "
                "was exported, or export the run again."
            )


def _checksum(record: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a signature's content, without the checksum field."""
    fields = {name: value for name, value in record.items() if name != _SHA256}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _with_tuples(kind: Any, record: Mapping[str, Any]) -> Any:
    """Returns a part of a signature with tuples instead of lists."""
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in record.items()})


def _damaged(path: Path, error: Exception) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged: {error!r}. Copy the artifact again from where it was exported, or "
        "export the run again."
    )
