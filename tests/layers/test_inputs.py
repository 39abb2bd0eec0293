"""Several inputs in one sequence."""

import torch

from t2t_torch.features import Features, Tags, Words, WordShape, WordStarts
from t2t_torch.hparam_groups import TransformerLayerHParams
from t2t_torch.layers.tokens import ModelInput
from t2t_torch.layers.transformer_layer import JoinInputs, Positions
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder

WORDS = Words(ByteEncoder())
TAGS = {"targets": Tags(ClassLabelEncoder(["a", "b"]))}
OF_WORDS = Features(
    {"inputs": WORDS, "inputs_shape": WordShape("inputs")},
    TAGS,
    notes={"inputs_starts": WordStarts("inputs", WORDS)},
)


def given(values, mask=None):
    """An input whose vectors are its values."""
    return ModelInput(values, values, torch.ones(values.shape[:2]).bool() if mask is None else mask)


def test_what_belongs_to_a_word_is_added_at_its_first_id_and_read_there():
    positions = Positions(TransformerLayerHParams().replace(pos="none"), 0)
    join = JoinInputs(OF_WORDS, 2, positions)
    batch = {
        "inputs": given(
            torch.zeros(2, 5, 2), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
        ),
        "inputs_shape": given(torch.tensor([[[1.0, 1], [2, 2], [3, 3]], [[4, 4], [0, 0], [0, 0]]])),
        "inputs_starts": given(torch.tensor([[0, 2, 3], [0, 0, 0]])),
    }
    joined = join(batch)
    assert joined.places == {"inputs": (0, 5)}
    assert joined.x[..., 0].tolist() == [[1, 0, 2, 3, 0], [4, 0, 0, 0, 0]]
    at_words = join.places.at_words("inputs", joined.x, batch)
    assert at_words[0, :, 0].tolist() == [1, 2, 3]
    assert at_words[1, 0, 0].item() == 4
    assert join.places.mask("inputs", batch).tolist() == [[True] * 3, [True, False, False]]


def test_texts_keep_positions_of_their_own_and_say_which_they_are():
    text = Words(ByteEncoder())
    positions = Positions(TransformerLayerHParams(), 0)
    join = JoinInputs(Features({"first": text, "second": text}, TAGS), 4, positions)
    batch = {"first": given(torch.zeros(1, 2, 4)), "second": given(torch.zeros(1, 3, 4))}
    joined = join(batch)
    assert joined.places == {"first": (0, 2), "second": (2, 5)}
    torch.testing.assert_close(joined.x[0, 0] - join.which[0], joined.x[0, 2] - join.which[1])
    alone = join(batch, ["second"], {"second": "first"})
    torch.testing.assert_close(alone.x[0] - join.which[0], joined.x[0, 2:] - join.which[1])
