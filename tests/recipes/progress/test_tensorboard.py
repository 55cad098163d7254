"""What TensorBoard shows of a run, also of one that was interrupted; and runs without TensorBoard."""

import sys
from dataclasses import replace

import pytest

from oni.recipes.run_files.config import Config
from oni.recipes.training.run import train

CONFIG = Config(
    data="fashion-mnist-sample",
    network_options={"depth": 1, "width": 8},
    method="plain",
    batch_size=64,
    epochs=3,
    samples=512,
    drops=(1,),
    watch=("cut",),
)


def cut(step):
    """Ends a run the way that a crash does."""

    def look(done, model):
        if done == step:
            raise RuntimeError("cut")

    return look


def read_scalars(folder):
    """Steps and values of every chart, read as TensorBoard reads them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


# TensorBoard's own code calls what numpy and protobuf have deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("cut_at", [-1, 19, 16], ids=["whole", "in-an-epoch", "at-the-end-of-an-epoch"])
def test_every_step_is_shown_once(cut_at, tmp_path):
    pytest.importorskip("tensorboard")
    if cut_at > 0:
        # Two epochs of 8 steps are written by then, and the checkpoint is of step 14 or 7.
        with pytest.raises(RuntimeError, match="cut"):
            train(CONFIG, tmp_path, progress="none", checkpoint_steps=7, watch={"cut": cut(cut_at)})
    result = train(CONFIG, tmp_path, progress="none", watch={"cut": cut(-1)})
    scalars = read_scalars(result.folder)
    assert set(scalars) == {"loss/train", "loss/test", "error/train", "error/test", "learning_rate"}
    for tag, metric in (("error/test", "test_error"), ("loss/train", "train_loss"), ("learning_rate", "learning_rate")):
        assert [step for step, _ in scalars[tag]] == [8, 16, 24]
        # Events hold float32.
        assert [value for _, value in scalars[tag]] == pytest.approx([row[metric] for row in result.epochs], rel=1e-6)


def test_without_tensorboard(tmp_path, monkeypatch):
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    result = train(replace(CONFIG, watch=(), epochs=1), tmp_path, progress="none")
    assert result.metrics["status"] == "finished"
    assert not list(result.folder.glob("events*"))
