"""Files that a checkpoint reader must refuse in one line, each as a function that writes it."""

import pickle
import zipfile

import torch


class Payload:
    """Runs a command as it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.trace}",)


def code(path, trace):
    torch.save({"weight": torch.ones(2, 2), "more": Payload(trace)}, path)


def bare_pickle(path, trace):
    path.write_bytes(pickle.dumps(Payload(trace), protocol=2))


def whole_model(path, trace):
    torch.save(torch.nn.Linear(2, 2), path)


def truncated(path, trace):
    torch.save({"weight": torch.ones(64, 64)}, path)
    path.write_bytes(path.read_bytes()[:-2000])


def truncated_legacy(path, trace):
    torch.save({"weight": torch.ones(64, 64)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-2000])


def cut_in_the_middle(path, trace):
    torch.save({"weight": torch.ones(64, 64)}, path)
    data = path.read_bytes()
    path.write_bytes(data[:200] + data[400:])


def bomb(path, trace):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)
        archive.writestr("archive/version", b"3")


def other_zip(path, trace):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("letter.txt", "hello")


def text(path, trace):
    path.write_text("weights go here")


def empty(path, trace):
    path.touch()


def number(path, trace):
    torch.save(3.5, path)


def only_vectors(path, trace):
    torch.save({"bias": torch.ones(3), "count": torch.ones(2, 2, dtype=torch.int64)}, path)


def only_an_optimizer(path, trace):
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2)).sum().backward()
    optimizer.step()
    torch.save({"optimizer": optimizer.state_dict()}, path)


FILES = {
    code: r"refused: it wants to run \S*system",
    bare_pickle: r"refused: it wants to run \S*system",
    whole_model: r"refused: it wants to run torch.nn.modules.linear.Linear .*state_dict",
    truncated: "not a checkpoint: neither a zip archive .only the start of one: truncated",
    truncated_legacy: "truncated or damaged",
    cut_in_the_middle: "damaged",
    bomb: "refused: .* bytes that unpack to 10,000,001",
    other_zip: "damaged|can't be read",
    text: "not a checkpoint",
    empty: "not a checkpoint",
    number: "no weight matrices: none of its 0 tensors|nothing to bake",
    only_vectors: "no weight matrices: none of its 2 tensors|nothing to bake",
    only_an_optimizer: "no weight matrices|nothing to bake",
}
