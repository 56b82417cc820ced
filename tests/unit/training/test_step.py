"""Every layout equals the single-process run, and that run equals Hugging Face's Llama.

Losses within rtol 1e-5 over several steps, first-step gradients within atol 1e-6, in fp32.
"""

import itertools

import pytest
import torch

from scaling_study.spec import AttentionBackend, Model, Precision, ReductionDtype, TrainingRun
from scaling_study.training.initialise import initialise
from scaling_study.training.model import Llama
from scaling_study.training.step import Trainer, token_loss
from tests.ranks import run_on_ranks

MODEL = Model(name="test", layers=4, hidden=64, heads=4, kv_heads=2, ffn=176, vocabulary=256, source="test")
LAYOUTS = {"dp": (2, 1, 1), "tp": (1, 2, 1), "pp": (1, 1, 2), "dp-tp": (2, 2, 1), "dp-pp": (2, 1, 2)}
LAYOUTS |= {"tp-pp": (1, 2, 2), "dp-tp-pp": (2, 2, 2)}
STEPS = 3


def make_run(dp=1, tp=1, pp=1, **fields):
    fields = {"precision": Precision.FP32, "global_batch": 8, "micro_batch": 2, "sequence_length": 32, **fields}
    fields = {"attention": AttentionBackend.SDPA, **fields}
    return TrainingRun(model="test", hardware="cpu", nodes=dp * tp * pp, dp=dp, tp=tp, pp=pp, **fields)


def batch(run, step):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, MODEL.vocabulary, (run.global_batch, run.sequence_length + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def train(run, steps=STEPS):
    """Losses of every step, and the whole gradients of the first (unscaled, not yet clipped), on this rank."""
    from torch.distributed.tensor import DTensor

    trainer = Trainer(run, MODEL, torch.device("cpu"))
    losses, gradients = [], {}
    for step in range(steps):
        rows = slice(trainer.replica * run.local_batch, (trainer.replica + 1) * run.local_batch)
        tokens, target = (part[rows] for part in batch(run, step))
        trainer.optimizer.zero_grad(set_to_none=True)
        loss = trainer.forward_backward(tokens, target)
        if step == 0:
            for name, parameter in trainer.named_parameters().items():
                gradient = parameter.grad
                whole = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
                gradients[name] = whole.float().numpy() / trainer.scaler.scale
        trainer.update()
        losses.append(None if loss is None else loss.item())
    return trainer.replica, losses, gradients


def combine(results):
    """Mean losses over replicas, and the gradients of all stages together."""
    per_replica = {replica: losses for replica, losses, _ in results if losses[0] is not None}
    losses = torch.tensor(list(per_replica.values()), dtype=torch.float64).mean(0)
    gradients = {}
    for _, _, mine in results:
        gradients |= {name: torch.from_numpy(value) for name, value in mine.items()}
    return losses, gradients


@pytest.fixture(scope="module")
def reference():
    """The plain model in one process: no wrapper, no accumulation."""
    torch.manual_seed(0)
    run = make_run()
    stage = Llama(MODEL, run.sequence_length)
    initialise(stage, torch.device("cpu"))
    optimizer = torch.optim.AdamW(stage.parameters(), lr=run.protocol.learning_rate)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = token_loss(stage(batch(run, step)[0]), batch(run, step)[1])
        loss.backward()
        if step == 0:
            gradients = {name: parameter.grad.clone() for name, parameter in stage.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), gradients


@pytest.mark.parametrize(
    ("layout", "reshard"),
    [(name, reshard) for name, reshard in itertools.product(LAYOUTS, (False, True)) if "dp" in name or not reshard],
)
def test_layout_equals_single_process(layout, reshard, reference):
    dp, tp, pp = LAYOUTS[layout]
    run = make_run(dp, tp, pp, reshard_after_forward=reshard)
    losses, gradients = combine(run_on_ranks(train, run.ranks, run))
    torch.testing.assert_close(losses, reference[0], rtol=1e-5, atol=0)
    assert gradients.keys() == reference[1].keys()
    for name, expected in reference[1].items():
        torch.testing.assert_close(gradients[name], expected, rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_bf16_with_fp32_reduction_stays_close(reference):
    run = make_run(2, precision=Precision.BF16, reduction_dtype=ReductionDtype.FP32)
    losses, _ = combine(run_on_ranks(train, run.ranks, run))
    torch.testing.assert_close(losses, reference[0], rtol=5e-3, atol=0)


def test_reduction_dtype_changes_the_gradients_only_within_bf16(reference):
    in_fp32 = combine(run_on_ranks(train, 2, make_run(2, precision=Precision.BF16)))[1]
    reduced = make_run(2, precision=Precision.BF16, reduction_dtype=ReductionDtype.BF16)
    in_bf16 = combine(run_on_ranks(train, 2, reduced))[1]
    name = "layers.0.attention.wq.weight"
    assert not torch.equal(in_fp32[name], in_bf16[name])
    torch.testing.assert_close(in_fp32[name], in_bf16[name], rtol=2**-7, atol=1e-5)


def test_plain_model_equals_transformers(reference):
    import transformers

    run = make_run()
    mine = Llama(MODEL, run.sequence_length)
    initialise(mine, torch.device("cpu"))
    config = transformers.LlamaConfig(
        vocab_size=MODEL.vocabulary,
        hidden_size=MODEL.hidden,
        intermediate_size=MODEL.ffn,
        num_hidden_layers=MODEL.layers,
        num_attention_heads=MODEL.heads,
        num_key_value_heads=MODEL.kv_heads,
        rms_norm_eps=MODEL.norm_epsilon,
        max_position_embeddings=run.sequence_length,
        tie_word_embeddings=False,
        rope_theta=MODEL.rope_base,
    )
    theirs = transformers.LlamaForCausalLM(config)
    names = {their_name(name): parameter for name, parameter in mine.named_parameters()}
    theirs.load_state_dict({name: parameter.detach() for name, parameter in names.items()})
    optimizers = [torch.optim.AdamW(m.parameters(), lr=run.protocol.learning_rate) for m in (mine, theirs)]
    for step in range(STEPS):
        tokens, target = batch(run, step)
        losses = token_loss(mine(tokens), target), token_loss(theirs(tokens).logits, target)
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=0)
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
        if step == 0:
            for name, parameter in theirs.named_parameters():
                torch.testing.assert_close(names[name].grad, parameter.grad, rtol=0, atol=1e-6)
        for optimizer in optimizers:
            optimizer.step()


def their_name(name):
    """Hugging Face's name of a parameter."""
    parts = {"attention.w": "self_attn.", "feed_forward.": "mlp.", "attention_norm": "input_layernorm"}
    parts |= {"ffn_norm": "post_attention_layernorm", "tok_embeddings": "embed_tokens"}
    if name.startswith("output"):
        return name.replace("output", "lm_head")
    for mine, theirs in parts.items():
        name = name.replace(mine, theirs)
    for short in "qkvo":
        name = name.replace(f"self_attn.{short}.", f"self_attn.{short}_proj.")
    for mine, theirs in {"mlp.w1": "mlp.gate_proj", "mlp.w2": "mlp.down_proj", "mlp.w3": "mlp.up_proj"}.items():
        name = name.replace(mine, theirs)
    return f"model.{name}"
