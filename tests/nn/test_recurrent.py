"""nn.RNN, nn.GRU and nn.LSTM with orthogonal weights: what a loop over cells gives, never stale, never frozen."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.testing import assert_close

import oni

KINDS = {
    "rnn": (nn.RNN, {}, 1),
    "rnn relu": (nn.RNN, {"nonlinearity": "relu"}, 1),
    "gru": (nn.GRU, {}, 3),
    "lstm": (nn.LSTM, {}, 4),
    "lstm, projected": (nn.LSTM, {"proj_size": 3}, 4),
}
CELLS = {"RNN_TANH": torch.rnn_tanh_cell, "RNN_RELU": torch.rnn_relu_cell, "GRU": torch.gru_cell}
# Some 40 products in a row (12 of 5 steps, 7 positions of 2 layers forward and back), with sums of up to 40 terms of
# numbers of a few units: 40 * sqrt(40) * 2.2e-16 = 6e-14 of them.
FLOAT64 = {"atol": 1e-12, "rtol": 1e-12}
INPUTS, HIDDEN, POSITIONS, BATCH = 4, 5, 7, 3
X = torch.randn(POSITIONS, BATCH, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def recurrent_names(layer):
    return [name for names in layer._all_weights for name in names if name.startswith("weight_hh")]


def build(kind="gru", seed=0, **options):
    make, own, _ = KINDS[kind]
    torch.manual_seed(seed)
    return make(INPUTS, HIDDEN, num_layers=2, bidirectional=True, dtype=torch.float64, **own, **options)


def make_orthogonal(layer, **options):
    for name in recurrent_names(layer):
        oni.orthogonal(layer, name, **options)
    return layer


def run_cells(layer, weights, x):
    """What a layer gives, by a loop over its cells."""
    for number in range(layer.num_layers):
        directions = []
        for suffix in ("", "_reverse") if layer.bidirectional else ("",):
            w_ih, w_hh, b_ih, b_hh = (
                weights[f"{name}_l{number}{suffix}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            h, c = x.new_zeros(x.shape[1], w_hh.shape[1]), x.new_zeros(x.shape[1], layer.hidden_size)
            states = []
            for position in x.flip(0) if suffix else x:
                if layer.proj_size:  # which torch's cell does not have
                    i, f, g, o = (position @ w_ih.T + b_ih + h @ w_hh.T + b_hh).chunk(4, 1)
                    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                    h = (o.sigmoid() * c.tanh()) @ weights[f"weight_hr_l{number}{suffix}"].T
                elif layer.mode == "LSTM":
                    h, c = torch.lstm_cell(position, (h, c), w_ih, w_hh, b_ih, b_hh)
                else:
                    h = CELLS[layer.mode](position, h, w_ih, w_hh, b_ih, b_hh)
                states.append(h)
            outputs = torch.stack(states)
            directions.append(outputs.flip(0) if suffix else outputs)
        x = torch.cat(directions, -1)
    return x


def find_leaves(layer):
    """Copies of the parameters and proxies of a layer, by the names of the weights."""
    own = {name.removeprefix("parametrizations.").removesuffix(".original"): p for name, p in layer.named_parameters()}
    return {name: parameter.detach().clone().requires_grad_() for name, parameter in own.items()}


def compute_weights(layer, leaves, gates, **options):
    names = recurrent_names(layer)
    return {
        name: oni.orthogonalize(leaf, groups=gates, **options) if name in names else leaf
        for name, leaf in leaves.items()
    }


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_of_the_cell_loop(kind, converted):
    layer = build(kind)
    oni.convert(layer) if converted else make_orthogonal(layer)
    leaves = find_leaves(layer)
    x, same_x = X.clone().requires_grad_(), X.clone().requires_grad_()
    y = layer(x)[0]
    expected = run_cells(layer, compute_weights(layer, leaves, KINDS[kind][2]), same_x)
    assert_close(y, expected, **FLOAT64)
    # No sum, of which a state that goes round has no gradient.
    y.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    assert_close(x.grad, same_x.grad, **FLOAT64)
    for name, parameter in layer.named_parameters():
        short = name.removeprefix("parametrizations.").removesuffix(".original")
        assert parameter.grad.norm() > 1e-6, name
        assert_close(parameter.grad, leaves[short].grad, **FLOAT64, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind):
    gates = KINDS[kind][2]
    layer = oni.convert(build(kind), steps=2)
    leaves = find_leaves(layer)
    name = recurrent_names(layer)[0]
    Z = layer.parametrizations[name].original

    def differentiate_twice(y, leaf):
        (first,) = torch.autograd.grad(y.pow(3).sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0]

    found = differentiate_twice(layer(X)[0], Z)
    expected = run_cells(layer, compute_weights(layer, leaves, gates, steps=2), X)
    assert_close(found, differentiate_twice(expected, leaves[name]), **FLOAT64)


def test_the_form_that_onednn_computes():
    layer = oni.convert(build("lstm").float())
    leaves = {name: leaf.detach().double().requires_grad_() for name, leaf in find_leaves(layer).items()}
    y, expected = layer(X.float())[0], run_cells(layer, compute_weights(layer, leaves, 4), X)
    # float32: some 40 products in a row with sums of 40 terms, 40 * sqrt(40) * 1.2e-7 = 3e-5 of numbers below 1.
    assert_close(y.double(), expected, atol=3e-5, rtol=0)
    y.square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in layer.named_parameters():
        gradient = leaves[name.removeprefix("parametrizations.").removesuffix(".original")].grad
        assert_close(parameter.grad.double(), gradient, atol=3e-5 * max(1.0, gradient.abs().max().item()), rtol=0)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_training_changes_the_weights_and_keeps_them_orthogonal(kind):
    torch.manual_seed(0)
    make, own, gates = KINDS[kind]
    layer = oni.convert(make(INPUTS, HIDDEN, **own), steps=12, start="orthogonal")
    before = layer.weight_hh_l0.detach().clone()
    x, target = X.float(), torch.randn(POSITIONS, BATCH, own.get("proj_size", HIDDEN))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    losses = []
    for _ in range(100):
        loss = (layer(x)[0] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for gate in layer.weight_hh_l0.detach().chunk(gates):
            # float32: some 29 products with sums of 5 terms, 29 * sqrt(5) * 1.2e-7 = 8e-6 of numbers below 1.
            assert_close(gate.T @ gate, torch.eye(gate.shape[1]), atol=1e-5, rtol=0)
    assert losses[-1] < 0.8 * losses[0]
    assert (layer.weight_hh_l0 - before).norm() > 0.1 * before.norm()


def test_packed_sequences():
    layer = oni.convert(build("lstm"))
    lengths = (2, 6, 4)
    sequences = [torch.randn(length, INPUTS, dtype=torch.float64) for length in lengths]
    packed, (last, _) = layer(pack_sequence(sequences, enforce_sorted=False))
    padded, found_lengths = pad_packed_sequence(packed)
    assert tuple(found_lengths) == lengths
    padded.pow(3).sum().backward()
    found = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    for number, sequence in enumerate(sequences):
        alone, (state, _) = layer(sequence)
        alone.pow(3).sum().backward()
        assert_close(padded[: len(sequence), number], alone, **FLOAT64)
        assert_close(last[:, number], state, **FLOAT64)
    assert_close(found, [parameter.grad for parameter in layer.parameters()], **FLOAT64)


@pytest.mark.parametrize(("kind", "gates"), [(kind, gates) for kind, (_, _, gates) in KINDS.items()])
def test_gates_are_groups_unless_told_otherwise(kind, gates):
    layer = oni.convert(build(kind))
    rows = {row.layer: row for row in oni.summary(layer).rows}
    assert {row.groups for row in rows.values() if not row.why} == {gates}
    assert {layer for layer, row in rows.items() if not row.why} == {
        f"weight_hh_l{number}{suffix}" for number in range(2) for suffix in ("", "_reverse")
    }
    assert rows["weight_ih_l0"].why == "is not recurrent; call oni.orthogonal on it"
    assert ("  groups  " in str(oni.summary(layer))) == (gates > 1)
    oni.orthogonal(layer, "weight_ih_l0")
    assert layer.parametrizations.weight_ih_l0[0].options.groups == gates
    whole = oni.orthogonal(build(kind), "weight_hh_l1", groups=1, steps=30)
    W = whole.weight_hh_l1
    # All rows as one matrix: its columns, of which there are no more than rows, are orthonormal.
    assert_close(W.T @ W, torch.eye(W.shape[1], dtype=W.dtype), atol=1e-9, rtol=0)
    if layer.proj_size:
        oni.orthogonal(layer, "weight_hr_l0", steps=30, center=False)
        W = layer.weight_hr_l0
        assert_close(W @ W.T, torch.eye(3, dtype=W.dtype), atol=1e-9, rtol=0)


# Never stale


def step(layer):
    layer(X)[0].pow(3).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()


def step_fused(layer):
    layer(X)[0].pow(3).sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.5, fused=True).step()


def load(layer):
    layer.load_state_dict(make_orthogonal(build(seed=1)).state_dict())


def load_other_parameters(layer):
    layer.load_state_dict(make_orthogonal(build(seed=1)).state_dict(), assign=True)


def write_data(layer):
    Z = layer.parametrizations.weight_hh_l1.original
    Z.data.copy_(torch.randn_like(Z))


def write_a_plain_weight(layer):
    layer.weight_ih_l0.data.mul_(-1)


def assign(layer):
    layer.weight_hh_l0_reverse = torch.randn_like(layer.weight_hh_l0_reverse)


def assign_a_plain_weight(layer):
    layer.weight_ih_l1 = nn.Parameter(torch.randn_like(layer.weight_ih_l1))


def convert_again(layer):
    oni.bake(layer)
    make_orthogonal(layer, steps=2)


CHANGES = (
    step,
    step_fused,
    load,
    load_other_parameters,
    write_a_plain_weight,
    assign,
    assign_a_plain_weight,
    write_data,
    convert_again,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("converted", [False, True])
def test_never_stale(change, converted):
    layer = oni.convert(build()) if converted else make_orthogonal(build())
    check_change(layer, change)


@pytest.mark.parametrize("change", CHANGES[:-2], ids=lambda change: change.__name__)
def test_never_stale_inside_cached(change):
    # Which does not see what torch does not count; and baking ends what it knows.
    layer = oni.convert(build())
    with oni.cached(layer):
        check_change(layer, change)


def check_change(layer, change):
    before = layer(X)[0]
    with torch.no_grad():
        layer(X)
    change(layer)
    after = layer(X)[0]
    assert not torch.allclose(after, before, atol=1e-3)
    leaves = find_leaves(layer)
    options = {"steps": 2} if change is convert_again else {}
    assert_close(after, run_cells(layer, compute_weights(layer, leaves, 3, **options), X), **FLOAT64)
    assert_close(oni.bake(copy.deepcopy(layer))(X)[0], after, **FLOAT64)


def test_moving_to_another_dtype():
    layer = make_orthogonal(build("lstm"))
    before = layer(X)[0]
    layer.float()
    y = layer(X.float())[0]
    assert y.dtype == torch.float32
    # 40 products in a row with sums of 10 terms: 40 * sqrt(10) * 1.2e-7 of states below 1.
    assert_close(y.double(), before, atol=2e-5, rtol=0)


def test_functional_call():
    layer = make_orthogonal(build())
    other = {name: p.detach() for name, p in make_orthogonal(build(seed=1)).named_parameters()}
    before = layer(X)[0]
    found = torch.func.functional_call(layer, other, (X,))[0]
    assert_close(found, make_orthogonal(build(seed=1))(X)[0], **FLOAT64)
    assert_close(layer(X)[0], before, **FLOAT64)


def test_each_weight_is_computed_once_in_a_forward_pass(monkeypatch):
    from oni.nn.parametrization import Orthogonal

    calls = []
    unscaled = Orthogonal.unscaled
    monkeypatch.setattr(Orthogonal, "unscaled", lambda self, Z: calls.append(1) or unscaled(self, Z))
    layer = make_orthogonal(build("lstm"))
    calls.clear()
    layer(X)
    assert len(calls) == 4
    layer.flatten_parameters()
    layer.double()
    assert len(calls) == 4


def test_nothing_is_kept_after_a_pass_that_fails():
    layer = make_orthogonal(build())
    with pytest.raises(RuntimeError, match="must be equal to input_size"):
        layer(torch.zeros(2, 2, 9, dtype=torch.float64))
    write_data(layer)
    assert_close(layer(X)[0], run_cells(layer, compute_weights(layer, find_leaves(layer), 3), X), **FLOAT64)


def test_threads_do_not_see_each_other():
    layer = make_orthogonal(build())
    expected = layer(X)[0].detach()
    wrong = []

    def run():
        for _ in range(20):
            if not torch.allclose(layer(X)[0], expected, atol=1e-12):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Copies, files, plain again


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_files(kind):
    layer = oni.convert(build(kind), learn_scale=True)
    y = layer(X)[0]  # with a graph, which nothing may keep
    copied = copy.deepcopy(layer)
    assert_close(copied(X)[0], y, **FLOAT64)
    step(copied)
    assert not torch.allclose(copied(X)[0], y, atol=1e-3)
    assert_close(layer(X)[0], y, **FLOAT64)
    other = oni.convert(build(kind, seed=1), learn_scale=True)
    other.load_state_dict(layer.state_dict())
    assert_close(other(X)[0], y, **FLOAT64)


@pytest.mark.parametrize("kind", KINDS)
def test_baked_is_plain(kind):
    plain = build(kind)
    layer = oni.convert(build(kind))
    step(layer)
    y = layer(X)[0]
    assert oni.bake(layer) is layer
    assert type(layer) is type(plain)
    assert list(layer.state_dict()) == list(plain.state_dict())
    assert set(vars(layer)) == set(vars(plain))
    fresh = build(kind, seed=1)
    fresh.load_state_dict(layer.state_dict())
    for same in (layer, fresh, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert_close(same(X)[0], y, **FLOAT64)
    # And trains as such.
    step(layer)
    assert not torch.allclose(layer(X)[0], y, atol=1e-3)


@pytest.mark.parametrize("moved", [False, True])
def test_torch_may_make_it_plain_too(moved):
    layer = make_orthogonal(build())
    y = layer(X)[0]
    if moved:
        layer.double()
    for name in recurrent_names(layer):
        parametrize.remove_parametrizations(layer, name)
    assert type(layer) is nn.GRU
    assert_close(layer(X)[0], y, **FLOAT64)


def test_baking_leaves_the_parametrizations_of_others_live():
    layer = nn.utils.parametrizations.weight_norm(build(), "weight_ih_l0")
    oni.convert(layer)
    oni.bake(layer)
    before = layer(X)[0]
    with torch.no_grad():
        layer.parametrizations.weight_ih_l0.original0.mul_(2)
    assert not torch.allclose(layer(X)[0], before, atol=1e-3)


@pytest.mark.filterwarnings("ignore")  # torch.compile's own code uses what torch deprecates
def test_compile():
    # torch.compile runs recurrent layers as they are, with a graph break before and after.
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory, self.head = build("lstm"), nn.Linear(2 * HIDDEN, 2).double()

        def forward(self, x):
            return self.head(self.memory(x)[0])

    model = oni.convert(Net())
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        y = compiled(X)
        assert_close(y, oni.bake(copy.deepcopy(model))(X), **FLOAT64)
        y.pow(3).sum().backward()
        optimizer.step()


def test_activation_checkpointing():
    from torch.utils.checkpoint import checkpoint

    gradients = []
    for run in (lambda layer: layer(X), lambda layer: checkpoint(layer, X, use_reentrant=False)):
        layer = oni.convert(build())
        run(layer)[0].pow(3).sum().backward()
        gradients.append([parameter.grad for parameter in layer.parameters()])
    assert_close(*gradients, **FLOAT64)


def test_a_weight_tied_to_one_that_is_left_free_is_left_free():
    layer = nn.RNN(HIDDEN, HIDDEN)
    layer.weight_hh_l0 = layer.weight_ih_l0
    with pytest.warns(UserWarning, match="nothing to convert: .*shares its parameter with RNN"):
        oni.convert(layer)
