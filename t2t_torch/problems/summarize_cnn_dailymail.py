"""CNN and Daily Mail: 312,000 articles with their editors' highlights.

Source: Hermann et al. 2015, "Teaching Machines to Read and Comprehend"; the original texts, in the
splits of See et al. 2017, "Get To The Point", github.com/abisee/cnn-dailymail.
Licence: none stated for the articles, which are CNN's and the Daily Mail's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from absl import logging

from t2t_torch.data.raw_file import RawFile, unpack
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem

_LISTS = "https://raw.githubusercontent.com/abisee/cnn-dailymail/master/url_lists/"
_COPIES = "https://huggingface.co/datasets/ccdv/cnn_dailymail/resolve/main/"
_DRIVE = "https://drive.google.com/uc?export=download&id="
_FOLDERS = ("cnn_dailymail", "")
# The checksums are from TensorFlow Datasets, url_checksums/cnn_dailymail.txt.
_ADDRESSES = {
    split: RawFile(f"all_{part}.txt", _FOLDERS, (f"{_LISTS}all_{part}.txt",), sha256)
    for split, part, sha256 in (
        (Split.TRAIN, "train", "a5cee49f3a6c862c26ce29308236d2a99625ab6c86a43be22d5206b2790d8029"),
        (Split.EVAL, "val", "81887e982b045083409c6ee838aede8ff4b97291605bcfb21bffc456a16991db"),
        (Split.TEST, "test", "c4f5efb5ec2126430a5c156efbd13d0e9c4cb490169e552c38b4a51981a009bd"),
    )
}
_STORIES = {
    "cnn": RawFile(
        "cnn_stories.tgz",
        _FOLDERS,
        (f"{_COPIES}cnn_stories.tgz", f"{_DRIVE}0BwmD_VLjROrfTHk4NFg2SndKcjQ"),
        "e8fbc0027e54e0a916abd9c969eb35f708ed1467d7ef4e3b17a56739d65cb200",
    ),
    "dailymail": RawFile(
        "dailymail_stories.tgz",
        _FOLDERS,
        (f"{_COPIES}dailymail_stories.tgz", f"{_DRIVE}0BwmD_VLjROrfM1BxdkxVaTY2bWs"),
        "ad69010002210b7c406718248ee66e65868b9f6820f163aa966369878d14147e",
    ),
}
_POINT = "@highlight"
_ENDS = tuple(".!?)'`\"\u2019\u201d")  # end-of-sentence marks


@register_problem("summarize_cnn_dailymail32k")
class SummarizeCnnDailymail32k(Text2TextProblem):
    """Summarizes an article as its highlights, one sentence after another.

    The raw files are the URL lists, `all_{train,val,test}.txt`, and the stories: the two archives,
    or their folders `cnn/stories` and `dailymail/stories`.  A story's file name is the SHA-1 of its
    URL.  About a hundred stories consist of image captions only and have no article; they are
    skipped and counted.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1, Split.TEST: 1}
    max_samples_for_vocab = 100_000  # articles are long
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 3
    suggested_flags = "--model=transformer --hparams_set=transformer_base"
    sources = tuple(_ADDRESSES.values())

    def prepare(self, tmp_dir: Path) -> None:
        """Downloads the lists, and downloads and unpacks the stories."""
        super().prepare(tmp_dir)
        for publisher in _STORIES:
            _folder(tmp_dir, publisher)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the stories in list order; DataError if one is missing."""
        folders = [_folder(tmp_dir, publisher) for publisher in _STORIES]
        addresses = _ADDRESSES[split].get(tmp_dir)
        without = 0
        for record in open_records(addresses, format="lines", bad=self.bad_records):
            address = record.values["text"].strip()
            if not address:
                continue
            name = f"{hashlib.sha1(address.encode()).hexdigest()}.story"
            path = next((p for folder in folders if (p := folder / name).is_file()), None)
            if path is None:
                raise DataError(
                    f"{record.place}: no {name}, the story of {address}, in "
                    f"{' or '.join(map(str, folders))}. Are the stories unpacked whole?"
                )
            article, points = self._story(path)
            if article and points:
                yield {"inputs": article, "targets": points}
            else:
                without += 1
        if without:
            logging.info("%s: %d stories without article or points left out.", split.value, without)

    def _story(self, path: Path) -> tuple[str, str]:
        """Returns article and highlights of a story, one line each, with sentence-final marks."""
        article: list[str] = []
        points: list[str] = []
        texts = article
        for record in open_records(path, format="lines", bad=self.bad_records):
            line = record.values["text"].strip()
            if line.startswith(_POINT):
                texts = points
            elif line:
                texts.append(line if line.endswith(_ENDS) else f"{line}.")
        return " ".join(article), " ".join(points)


def _folder(tmp_dir: Path, publisher: str) -> Path:
    """Returns the folder of a publisher's stories; downloads and unpacks them if needed."""
    inside = Path(publisher, "stories")
    for place in _FOLDERS:
        for folder in (tmp_dir / place / inside, tmp_dir / place / f"{publisher}_stories" / inside):
            if folder.is_dir():
                return folder
    archive = _STORIES[publisher].get(tmp_dir)
    folder = unpack(archive) / inside
    if not folder.is_dir():
        raise DataError(
            f"{archive} has no folder {inside}, so it is not the archive that was expected. Remove "
            f"it and {folder.parent.parent}, and let it be fetched again."
        )
    return folder
