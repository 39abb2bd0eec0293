"""An artifact as what answers from it: with texts and labels, or with a trial's nested arrays."""

from __future__ import annotations

from pathlib import Path

from t2t_torch.artifact.session import Artifact
from t2t_torch.artifact.signature import Signature
from t2t_torch.artifact.tensor_session import TensorArtifact


def open_artifact(path: str | Path, *, threads: int = 0) -> Artifact | TensorArtifact:
    """Opens what `t2t-exporter` wrote.

    Args:
      path: the artifact's folder.
      threads: of onnxruntime, for one batch; 0: as many as there are cores.

    Raises:
      ArtifactError: this is no artifact, it is damaged, altered or newer than this version, or
        onnxruntime or its extensions are missing.
      UsageError: `threads` is below 0.
    """
    if Signature.read(Path(path)).nesting:
        return TensorArtifact(path, threads=threads)
    return Artifact(path, threads=threads)
