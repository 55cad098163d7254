"""With everything else that torch does to a model, each against the plain path."""

import copy
import io
import pickle

import pytest
import torch
from rounding import FIVE_STEPS, rounding
from torch import nn
from torch.testing import assert_close

import oni


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(),
        nn.Linear(4 * 64, 10),
        nn.ReLU(),
        nn.Linear(10, 10),
    )


def converted(**options):
    torch.manual_seed(1)
    return oni.convert(network(), **{"learn_scale": True, "scale": "relu", **options})


X = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))
# Weights of 5 steps, computed in a batch or one by one, then five layers with sums of up to 256 terms.
NETWORK = rounding(FIVE_STEPS + 5, 256)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def loss_of(model, x=X):
    return model(x).square().mean()


@pytest.mark.filterwarnings("ignore")  # torch.compile's own code uses what torch deprecates
@pytest.mark.parametrize(
    ("backend", "layers"),
    [("aot_eager", slice(None)), ("inductor", slice(0, 1))],  # compiling every layer takes inductor a minute
    ids=["aot_eager", "inductor"],
)
def test_compile_without_graph_breaks(backend, layers):
    torch._dynamo.reset()
    model = converted()[layers]
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    loss_of(compiled).backward()
    loss_of(twin).backward()
    for name, gradient in gradients(twin).items():
        # Fused kernels round differently; backward takes twice the products of forward.
        assert_close(gradients(model)[name], gradient, **rounding(3 * (FIVE_STEPS + 5), 256))
    # A change of the weights shows in a compiled model as well.
    with torch.no_grad():
        model[0].parametrizations.weight.original.copy_(torch.randn(8, 3, 3, 3))
    assert_close(compiled(X), oni.bake(copy.deepcopy(model))(X), **NETWORK)


def test_autocast():
    model = converted()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(X)
        baked = oni.bake(copy.deepcopy(model))(X)
    assert y.dtype == torch.bfloat16
    assert_close(y, baked)
    y.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    model = converted().to(dtype)
    y = model(X.to(dtype))
    assert y.dtype == dtype
    assert_close(y, oni.bake(copy.deepcopy(model))(X.to(dtype)))


def test_meta_device():
    with torch.device("meta"):
        model = converted()
        assert model(torch.empty(4, 3, 6, 6)).shape == (4, 10)


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        model = converted()
        assert_close(model(X), model(X))
        assert_close(model(X), oni.bake(model)(X), **NETWORK)


def test_averaged_model():
    model = converted()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        average.update_parameters(model)
        assert_close(average(X), oni.bake(copy.deepcopy(average))(X), **NETWORK)
    assert not torch.allclose(average(X), model(X))


def test_deepcopy_after_training_steps():
    model = converted()
    loss_of(model).backward()
    twin = copy.deepcopy(model)
    assert_close(twin(X), model(X))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(-0.5)
    assert not torch.allclose(twin(X), model(X))
    assert_close(model(X), converted()(X))


def test_functional_call():
    model = converted()
    other = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    model(X)
    y = torch.func.functional_call(model, other, (X,))
    twin = converted()
    twin.load_state_dict(other)
    assert_close(y, twin(X))
    assert_close(model(X), converted()(X))

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (X,)).square().mean()

    found = torch.func.grad(loss)(other)
    loss_of(twin).backward()
    for name, gradient in gradients(twin).items():
        assert_close(found[name], gradient, **rounding(3 * (FIVE_STEPS + 5), 256))


@pytest.mark.filterwarnings("ignore:.*batching rule:UserWarning")  # convolution's own
def test_an_ensemble_by_vmap():
    models = [oni.convert(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))) for _ in range(3)]
    stacked, _ = torch.func.stack_module_state(models)
    x = torch.randn(5, 6)

    def one(parameters, x):
        return torch.func.functional_call(models[0], parameters, (x,))

    found = torch.func.vmap(one, in_dims=(0, None))(stacked, x)
    assert_close(found, torch.stack([model(x) for model in models]), **rounding(FIVE_STEPS + 2, 6))


@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own forward-mode code
def test_jacobian_with_the_parameters_closed_over(transform):
    model = oni.convert(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4)))
    x = torch.randn(6)
    model(x)
    expected = torch.autograd.functional.jacobian(oni.bake(copy.deepcopy(model)), x)
    assert_close(transform(model)(x), expected, **rounding(FIVE_STEPS + 2, 6))


def test_state_dict_round_trip():
    model = converted()
    loss_of(model).backward()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    twin = oni.convert(network(), learn_scale=True, scale="relu")
    twin(X)
    twin.load_state_dict(state, strict=True)
    assert_close(twin(X), model(X))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("way", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_optimizer_paths(optimizer, way):
    model = converted()
    stepper = optimizer(model.parameters(), lr=0.01, **way)
    losses = []
    for _ in range(8):
        stepper.zero_grad()
        loss = loss_of(model)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
        for layer in (model[6], model[8]):
            # Where it should be after every step: sigma_max <= 1, up to the learnt scale of each filter.
            own = layer.parametrizations.weight[0]
            assert oni.spectrum(layer.weight / own.scale[:, None])[0] < 1 + rounding(FIVE_STEPS, 256)["rtol"]
    assert losses[-1] < losses[0]


class TestBaked:
    def test_pickle(self):
        model = oni.bake(converted())
        assert_close(pickle.loads(pickle.dumps(model))(X), model(X))

    def test_safetensors(self, tmp_path):
        safetensors = pytest.importorskip("safetensors.torch")
        model = oni.bake(converted())
        safetensors.save_model(model, str(tmp_path / "model.safetensors"))
        plain = network()
        safetensors.load_model(plain, str(tmp_path / "model.safetensors"))
        assert_close(plain(X), model(X))

    def test_strict_load_into_the_untouched_architecture(self):
        live = converted()
        y = live(X)
        plain = network()
        plain.load_state_dict(oni.bake(live).state_dict(), strict=True)
        assert_close(plain(X), y, **NETWORK)

    @pytest.mark.filterwarnings("ignore")  # torch.export's own code uses what torch deprecates
    def test_export(self):
        model = oni.bake(converted()).eval()
        exported = torch.export.export(model, (X,))
        assert_close(exported.module()(X), model(X))

    @pytest.mark.filterwarnings("ignore")
    def test_onnx(self, tmp_path):
        pytest.importorskip("onnxscript")
        runtime = pytest.importorskip("onnxruntime")
        model = oni.bake(converted()).eval()
        path = tmp_path / "model.onnx"
        torch.onnx.export(model, (X,), str(path), dynamo=True, verbose=False)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
        # Another engine: a few float32 epsilons over three convolutions.
        assert_close(torch.from_numpy(y), model(X).detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("lone", [True, False])
def test_onnx_needs_a_bake(tmp_path, dynamo, lone):
    pytest.importorskip("onnxscript")
    model = nn.Sequential(oni.nn.Linear(8, 4)) if lone else oni.convert(nn.Sequential(nn.Linear(8, 4)))
    with pytest.raises(Exception, match="can't be exported to ONNX; bake first"):
        torch.onnx.export(model, (torch.ones(2, 8),), str(tmp_path / "model.onnx"), dynamo=dynamo, verbose=False)


def test_unpickling_needs_a_bake():
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(converted())


@pytest.mark.parametrize("fast", [True, False])
def test_transformer_encoder(fast):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = oni.convert(copy.deepcopy(plain), steps=3, scale=2.0)
    x = torch.randn(3, 5, 16)
    model(x).sum().backward()
    model.eval()
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with torch.no_grad():
            live = model(x)
            baked = oni.bake(copy.deepcopy(model))(x)
            plain.load_state_dict(oni.bake(model).state_dict())
            # 3 steps (7 products), then two blocks of six products each, after a norm of layers with values below 5.
            assert_close(live, baked, **rounding(7 + 12, 32, values=5))
            assert_close(plain.eval()(x), baked)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def test_multihead_attention_projects_queries_keys_and_values_apart():
    attention = oni.convert(nn.MultiheadAttention(8, 2), steps=25)
    for part in attention.in_proj_weight.chunk(3):
        # 25 steps have converged; they run in float64, and the result is rounded once.
        assert_close(part @ part.T, torch.eye(8), **rounding(2, 8))
    other = oni.convert(nn.MultiheadAttention(8, 2, kdim=6, vdim=5), steps=25)
    assert_close(other.k_proj_weight.T @ other.k_proj_weight, torch.eye(6), **rounding(2, 16))
    x = torch.randn(3, 2, 8)
    assert attention(x, x, x)[0].isfinite().all()
