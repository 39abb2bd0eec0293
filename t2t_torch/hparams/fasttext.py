"""Hyperparameters of fastText."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, with_adam
from t2t_torch.params import probability
from t2t_torch.registry import register_hparams


class FasttextHParams(TokenHParams):
    """fastText: word n-grams."""

    ngram_order: int = hp(2, "Words of the longest n-grams.  1: words alone.", low=1, computes=True)
    ngram_buckets: int = hp(
        2**20, "Rows of the table that n-grams share: each has the row that its hash says.", low=1
    )
    bag_dropout: float = probability(
        0.0, "Probability of leaving a word or an n-gram out of the mean; training only."
    )
    count_once: bool = hp(
        False, "A word or n-gram that a text has several times is in the mean once.", computes=True
    )


@register_hparams
def fasttext_base() -> FasttextHParams:
    """Vectors of 10 and bigrams.  Joulin et al. 2017, arXiv:1607.01759, section 3.1.

    The rate decays linearly to 0, as in the paper.  The paper uses SGD at 0.25 with one step per
    example; that rate hardly learns with batch means, so Adam at 0.03 replaces it, and n-grams
    share 100,000 rows, as Adam updates all of them.  About 600 steps for thousands of texts.
    """
    return with_adam(FasttextHParams.plain()).replace(
        embedding_size=10,
        ngram_buckets=100_000,
        batch_size=1024,
        max_length=2000,
        layer_prepostprocess_dropout=0.0,
        clip_grad_norm=0.0,
        learning_rate_schedule="constant*polynomial_decay",
        learning_rate_warmup_steps=0,
        learning_rate_constant=0.03,
    )


@register_hparams
def fasttext_tiny() -> FasttextHParams:
    """Vectors of 10 and 4,096 rows for bigrams, for tests and quick trials."""
    return fasttext_base().replace(ngram_buckets=2**12, learning_rate_constant=0.01)


@register_hparams
def fasttext_ag_news() -> FasttextHParams:
    """For topic_ag_news_words, 600 steps: half of the words and bigrams are dropped at random.

    Feature dropout regularizes linear models by feature frequency: Wager et al. 2013,
    arXiv:1307.1493.
    """
    return fasttext_tiny().replace(
        batch_size=2048,
        ngram_buckets=100_000,
        bag_dropout=0.5,
        ema_decay=0.99,
        learning_rate_constant=0.03,
    )


@register_hparams
def fasttext_imdb() -> FasttextHParams:
    """For sentiment_imdb_words, 800 steps: `fasttext_long`."""
    return fasttext_long()


@register_hparams
def fasttext_long() -> FasttextHParams:
    """For texts of hundreds of words: n-grams up to three words, each once, half dropped.

    Binary presence of words works well for sentiment: Wang and Manning 2012, ACL.
    """
    return fasttext_ag_news().replace(
        embedding_size=4, batch_size=16384, ngram_order=3, ngram_buckets=1_000_000, count_once=True
    )
