"""Models that nobody here wrote: attention, depthwise convolutions, tied embeddings, layers of unknown classes."""

import copy

import pytest
import torch
from rounding import FIVE_STEPS, rounding
from torch import nn
from torch.testing import assert_close

import oni

CLASSES, WORDS = 3, 50
SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}

TOKENS = torch.randint(WORDS, (8, 12), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % CLASSES


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=WORDS, max_position_embeddings=16, num_labels=CLASSES, hidden_dropout_prob=0.0, **SMALL
    )
    return transformers.BertForSequenceClassification(config), {"input_ids": TOKENS, "labels": LABELS}


def vit():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=CLASSES, **SMALL)
    return transformers.ViTForImageClassification(config), {"pixel_values": IMAGES, "labels": LABELS}


def llama():
    transformers = pytest.importorskip("transformers")
    # Fewer keys than queries, so that not every projection is square; the head is the table of words.
    config = transformers.LlamaConfig(
        vocab_size=WORDS, max_position_embeddings=16, num_key_value_heads=2, tie_word_embeddings=True, **SMALL
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": TOKENS, "labels": TOKENS}


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": TOKENS, "labels": TOKENS}


# 3 steps are 7 products; the deepest of these networks has some 50 layers in a row, with sums of up to 1280 terms.
NETWORK = rounding(7 + 50, 1280)


class WithLoss(nn.Module):
    """Called as the models of transformers are."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        logits = self.model(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def efficientnet():
    package = pytest.importorskip("efficientnet_pytorch")
    model = package.EfficientNet.from_name(
        "efficientnet-b0", num_classes=CLASSES, image_size=32, drop_connect_rate=0.0, dropout_rate=0.0
    )
    return WithLoss(model), {"x": IMAGES, "labels": LABELS}


# What is left alone, and how many weights are not.
MODELS = {
    bert: (
        14,
        {"bert.embeddings." + name for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")},
    ),
    vit: (14, {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings"}),
    llama: (14, {"model.embed_tokens", "lm_head"}),
    efficientnet: (82, set()),
}


def built(build, seed=0):
    torch.manual_seed(seed)
    return build()


def outputs(model, batch):
    with torch.no_grad():
        return model(**batch)["logits"]


def train(model, batch, steps=6):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_convert_train_bake_ship(build):
    count, left_alone = MODELS[build]
    model, batch = built(build)
    plain, keys = repr(model), list(model.state_dict())

    oni.convert(model, steps=3, learn_scale=True)
    rows = oni.summary(model).rows
    assert {row.layer for row in rows if row.why} == left_alone
    assert sum(not row.why for row in rows) == count

    before = oni.bake(copy.deepcopy(model)).state_dict()
    losses = train(model.train(), batch)
    assert losses[-1] < losses[0]
    for row in oni.summary(model).rows:
        # 3 steps are 7 products, with sums of up to 1280 terms.
        assert row.why or row.sigma[1] < 1 + rounding(7, 1280)["rtol"], row

    live = outputs(model.eval(), batch)
    oni.bake(model)
    assert repr(model) == plain
    assert list(model.state_dict()) == keys
    assert_close(outputs(model, batch), live, **NETWORK)
    for row in rows:
        if row.layer not in left_alone:
            key = f"{row.layer}.weight"
        else:
            key = row.layer if row.layer in before else f"{row.layer}.weight"
        # Far more than rounding, which is all that would remain of AdamW's decay of the proxy alone.
        assert (model.state_dict()[key] - before[key]).norm() > 1e-3 * before[key].norm(), key

    fresh, _ = built(build, seed=1)
    assert not torch.allclose(outputs(fresh.eval(), batch), live, atol=1e-3)
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert_close(outputs(fresh, batch), live, **NETWORK)


def test_depthwise_filters_are_matrices_of_one_row():
    model, _ = built(efficientnet)
    oni.convert(model, only="*_depthwise_conv", scale=2.0)
    depthwise = [module for module in model.modules() if isinstance(module, nn.Conv2d) and module.groups > 1]
    assert len(depthwise) == 16
    for module in depthwise:
        norms = module.weight.flatten(1).norm(dim=1)
        # One row has one singular value, which 5 steps take to 1 but for rounding.
        assert_close(norms, torch.full_like(norms, 2.0), **rounding(FIVE_STEPS, 25))


def test_gpt2():
    # Its layers are of a class of transformers' own, with weights (in, out); its head is its table of words.
    model, batch = built(gpt2)
    keys = list(model.state_dict())
    oni.convert(model, steps=20)
    assert {row.layer for row in oni.summary(model).rows if row.why} == {
        "transformer.wte",
        "transformer.wpe",
        "lm_head",
    }
    for part in model.transformer.h[0].attn.c_attn.weight.T.chunk(3):
        # Queries, keys and values each are square, so not centred, and orthogonal after 20 steps, made in float64.
        assert_close(part @ part.T, torch.eye(32), atol=1e-4, rtol=0)
    wide = model.transformer.h[0].mlp.c_fc.weight.T
    assert wide.shape == (128, 32)
    assert_close(wide.T @ wide, torch.eye(32), atol=1e-4, rtol=0)
    losses = train(model, batch)
    assert losses[-1] < losses[0]
    live = outputs(model.eval(), batch)
    assert oni.convert(model, steps=20) is model  # a second time, with the same options
    oni.bake(model)
    assert list(model.state_dict()) == keys
    assert model.lm_head.weight is model.transformer.wte.weight
    assert_close(outputs(model, batch), live, **NETWORK)


def test_save_pretrained_before_bake_warns(tmp_path):
    model, batch = built(gpt2)
    oni.convert(model)
    with pytest.warns(UserWarning, match="save_pretrained saves the proxies"):
        model.save_pretrained(tmp_path / "live")
    oni.bake(model)
    model.save_pretrained(tmp_path / "baked")
    loaded = type(model).from_pretrained(tmp_path / "baked")
    assert_close(outputs(loaded.eval(), batch), outputs(model.eval(), batch))


def test_a_tied_head_stays_tied():
    model, batch = built(llama)
    table = model.model.embed_tokens.weight.detach().clone()
    oni.convert(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(model.lm_head.weight, table)
    train(model, batch, steps=2)
    oni.bake(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not torch.equal(model.lm_head.weight, table)


def test_gradient_checkpointing():
    gradients = []
    for checkpointing in (False, True):
        model, batch = built(llama)
        oni.convert(model.train(), learn_scale=True)
        if checkpointing:
            model.gradient_checkpointing_enable()
        # Twice, with a step between: what the backward pass computes again must be of the present weights.
        train(model, batch, steps=1)
        model.zero_grad()
        model(**batch)["loss"].backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        # The same operations, some of them run again, with weights computed one by one; gradients are below 0.1.
        assert_close(gradients[1][name], gradient, **rounding(60, 64, values=0.1))


def test_generate():
    model, _ = built(llama)
    oni.convert(model.eval())
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    mask = torch.ones_like(TOKENS)
    live = model.generate(TOKENS, attention_mask=mask, **options)
    assert live.shape == (8, 16)
    assert torch.equal(oni.bake(model).generate(TOKENS, attention_mask=mask, **options), live)


def test_save_pretrained(tmp_path):
    model, batch = built(bert)
    oni.convert(model, steps=3)
    train(model, batch, steps=2)
    live = outputs(model.eval(), batch)
    oni.bake(model).save_pretrained(tmp_path)
    assert_close(outputs(type(model).from_pretrained(tmp_path), batch), live, **NETWORK)


@pytest.mark.parametrize("safe", [False, True])
def test_merging_an_adapter_into_a_converted_model_warns(safe):
    # peft writes into layer.weight, which a converted layer computes anew.
    peft = pytest.importorskip("peft")
    outcomes = {}
    for baked in (False, True):
        model, batch = built(llama)
        oni.convert(model.eval(), steps=3)
        torch.manual_seed(0)
        config = peft.LoraConfig(target_modules=["q_proj", "down_proj"], init_lora_weights=False)
        adapted = peft.get_peft_model(model, config)
        live = outputs(adapted, batch)
        if baked:
            merged = oni.bake(adapted).merge_and_unload(safe_merge=safe)
        else:
            with pytest.warns(UserWarning, match="oni.bake the model first, then merge"):
                merged = adapted.merge_and_unload(safe_merge=safe)
        outcomes[baked] = (outputs(merged, batch) - live).abs().max().item()
    assert outcomes[False] > 1e-3
    assert outcomes[True] < NETWORK["atol"]
