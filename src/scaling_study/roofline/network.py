"""What roofs need to know of a model, and the least work of a token.

The least work, not the study's convention of MFU: an embedding is looked up and not multiplied, and causal attention
needs half of the square of scores. A roof made of it is one that no implementation exceeds.
"""

from __future__ import annotations

import msgspec

from scaling_study.spec import Model


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder by its sizes.

    Attributes:
        parameters: all that are kept.
        active: those that a token meets: all, but for a mixture of experts.
        multiplied: those of them that a token is multiplied with in blocks and head.
        blocks: the same without the head.
        layers, hidden: 0 where they are not known; attention and messages are then left out.
        key_value_elements: that attention keeps of a token, over all layers.
    """

    name: str
    parameters: float
    active: float
    multiplied: float
    blocks: float
    layers: int = 0
    hidden: int = 0
    key_value_elements: int = 0

    def training_flops(self, sequence_length: int) -> float:
        """The least of a token: three times forward, which is 2 a weight and 2 layers x hidden x sequence."""
        return 3 * (2 * self.multiplied + 2 * self.layers * self.hidden * sequence_length)

    def prefill_flops(self, sequence_length: int) -> float:
        """The least of a token of a prompt; the head is needed once a prompt and left out."""
        return 2 * self.blocks + 2 * self.layers * self.hidden * sequence_length

    def decode_flops(self, context_length: int) -> float:
        """The least of a token that attends to so many before it."""
        return 2 * self.multiplied + 4 * self.layers * self.hidden * context_length

    def model_flops(self, sequence_length: int) -> float:
        """Of a token, forward and backward, as MFU counts them: 6 N + 12 layers x hidden x sequence."""
        return 6 * self.active + 12 * self.layers * self.hidden * sequence_length


def network_of(model: Model) -> Network:
    """The sizes of a model of this study; its norms count as nothing."""
    blocks = model.layers * (model.layer_parameters - 2 * model.hidden)
    return Network(
        name=model.name,
        parameters=model.parameters,
        active=model.parameters,
        multiplied=blocks + model.embedding_parameters,
        blocks=blocks,
        layers=model.layers,
        hidden=model.hidden,
        key_value_elements=model.layers * 2 * model.kv_heads * model.head_dim,
    )


def network_of_parameters(parameters: float, active: float | None = None) -> Network:
    """The sizes of a model of which no more is known; every weight that is active is multiplied with."""
    met = parameters if active is None else active
    return Network(name=f"{parameters:.4g} parameters", parameters=parameters, active=met, multiplied=met, blocks=met)
