"""Multi30k: 29,000 image captions in English and German.  Elliott et al. 2016, arXiv:1605.00459."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import mirrored, on_github
from t2t_torch.files import read_parallel
from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem

_SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}
_FILES = mirrored(on_github("multi30k/dataset/master/data/task1/raw/"), _SHA256, "", "raw")
_PAIRS = dict(zip(Split, zip(_FILES[::2], _FILES[1::2], strict=True), strict=True))


@register_problem("translate_multi30k_ende")
class TranslateMulti30kEnde(Text2TextProblem):
    """English to German captions; evaluated on val, tested on test_2016_flickr.

    The raw files are `{train,val,test_2016_flickr}.{en,de}`, gzip-compressed or not, in
    `--tmp_dir` or its folder `raw`; missing files are downloaded.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    approx_vocab_size = 2**13
    suggested_flags = "--model=transformer --hparams_set=transformer_multi30k --train_steps=4000"
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 8  # SpaceID.DE_TOK

    sources = _FILES

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of captions."""
        english, german = (file.get(tmp_dir) for file in _PAIRS[split])
        for inputs, targets in read_parallel(english, german):
            yield {"inputs": inputs, "targets": targets}
