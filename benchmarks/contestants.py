"""Those who train: ours, transformers' Llama and torchtitan's, on one model, one batch and from the same weights.

Each builder gives a function that makes one training step on this rank's batch and returns the rank's mean loss. All
of them update with PyTorch's fused AdamW, in fp32. Under data parallelism the peers are sharded by FSDP2 in the same
units as ours: each layer, then what is left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

from scaling_study.spec import Model, TrainingRun
from scaling_study.training.initialise import draw
from scaling_study.training.model import Llama
from scaling_study.training.step import Trainer

Step = Callable[[Tensor, Tensor], Tensor]
CPU = torch.device("cpu")
OURS = "scaling-study"


def version(name: str) -> str:
    """The version of a contestant.

    Raises:
        ImportError: it is not installed.
    """
    return metadata.version(name)


def build(name: str, model: Model, run: TrainingRun) -> Step:
    """The training step of a contestant; the process group exists already.

    Raises:
        ImportError: the contestant, or something that it needs, is not installed.
    """
    return {OURS: ours, "transformers": transformers_llama, "torchtitan": torchtitan_llama}[name](model, run)


def ours(model: Model, run: TrainingRun) -> Step:
    """The trainer of the study."""
    trainer = Trainer(run, model, CPU)

    def step(tokens_BT: Tensor, target_BT: Tensor) -> Tensor:
        loss = trainer.step(tokens_BT, target_BT)
        assert loss is not None  # one pipeline stage
        return loss

    return step


def transformers_llama(model: Model, run: TrainingRun) -> Step:
    """Hugging Face's `LlamaForCausalLM` with SDPA."""
    from tests.unit.training.test_step import their_name

    transformers = import_transformers()
    config = transformers.LlamaConfig(
        vocab_size=model.vocabulary,
        hidden_size=model.hidden,
        intermediate_size=model.ffn,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        rms_norm_eps=model.norm_epsilon,
        max_position_embeddings=run.sequence_length,
        tie_word_embeddings=False,
        rope_theta=model.rope_base,
        use_cache=False,
        attn_implementation="sdpa",
    )
    llama = transformers.LlamaForCausalLM(config).train()
    llama.load_state_dict({their_name(name): weight for name, weight in _weights(model, run).items()})
    _shard(llama, llama.model.layers, run)
    return _step_of(llama, run, lambda tokens_BT: llama(tokens_BT).logits)


def torchtitan_llama(model: Model, run: TrainingRun) -> Step:
    """The Llama of torchtitan with SDPA.

    Its trainer and its `apply_fsdp` are left out: the first asks for CUDA where there is no accelerator, the second
    for a reduction that gloo does not have. Its rotary embedding is made Llama-2's by a scaling factor of 1, and its
    inner width ours by rounding up to a multiple of just that width.
    """
    titan = import_torchtitan()
    dimensions = titan["TransformerModelArgs"](
        dim=model.hidden,
        n_layers=model.layers,
        n_heads=model.heads,
        n_kv_heads=model.kv_heads,
        vocab_size=model.vocabulary,
        multiple_of=model.ffn,
        norm_eps=model.norm_epsilon,
        rope_theta=model.rope_base,
        rope_scaling_args=titan["RoPEScalingArgs"](scaling_factor=1.0),
        max_seq_len=run.sequence_length,
        attn_type="sdpa",
    )
    llama = titan["Transformer"](dimensions)
    llama.load_state_dict(_with_adjacent_pairs(_weights(model, run), model))
    _shard(llama, llama.layers.values(), run)
    return _step_of(llama, run, llama)


def import_transformers() -> Any:
    """The module, with its Llama imported.

    Raises:
        ImportError: it is not installed.
    """
    import transformers

    assert transformers.LlamaForCausalLM  # imports it now
    return transformers


def import_torchtitan() -> Mapping[str, Any]:
    """What is used of torchtitan, by name.

    It imports Triton kernels of its mixture-of-experts layers, which no Llama calls and a CPU build of PyTorch
    cannot import; nothing stands in their place.

    Raises:
        ImportError: it is not installed.
    """
    kernels = "torchtitan.models.moe.kernels"
    sys.modules.setdefault(kernels, mock.MagicMock(name=kernels))
    from torchtitan.models.llama3.model.args import RoPEScalingArgs, TransformerModelArgs
    from torchtitan.models.llama3.model.model import Transformer

    used = (RoPEScalingArgs, TransformerModelArgs, Transformer)
    return {one.__name__: one for one in used}


def _weights(model: Model, run: TrainingRun) -> dict[str, Tensor]:
    """The weights that ours starts from, whole, by our names."""
    with torch.device("meta"):
        shapes = {
            name: tuple(parameter.shape) for name, parameter in Llama(model, run.sequence_length).named_parameters()
        }
    return {name: draw(name, shape, CPU, seed=0) for name, shape in shapes.items()}


def _with_adjacent_pairs(weights: Mapping[str, Tensor], model: Model) -> dict[str, Tensor]:
    """The same weights for a rotary embedding that turns neighbours, where ours turns the halves of a head."""
    heads = {"wq": model.heads, "wk": model.kv_heads}
    return {
        name: weight.unflatten(0, (heads[kind], 2, -1)).transpose(1, 2).reshape(weight.shape)
        if (kind := name.split(".")[-2]) in heads
        else weight
        for name, weight in weights.items()
    }


def _shard(llama: nn.Module, layers: Iterable[nn.Module], run: TrainingRun) -> None:
    if run.dp == 1:
        return
    mesh = init_device_mesh("cpu", (run.dp,))
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    for module in (*layers, llama):
        fully_shard(module, mesh=mesh, reshard_after_forward=run.reshard_after_forward, mp_policy=policy)


def _step_of(llama: nn.Module, run: TrainingRun, logits_of: Callable[[Tensor], Tensor]) -> Step:
    """The loop that a user of a peer writes."""
    optimizer = torch.optim.AdamW(llama.parameters(), lr=run.protocol.learning_rate, fused=True)

    def step(tokens_BT: Tensor, target_BT: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(logits_of(tokens_BT).flatten(0, 1).float(), target_BT.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
