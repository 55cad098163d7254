import struct

import pytest

from oni.recipes.training.config import Config
from oni.recipes.training.events import checksum, event_file
from oni.recipes.training.run import train

ROWS = [
    {
        "steps": 234 * epoch,
        "learning_rate": 0.5,
        "train_loss": 1 / epoch,
        "train_error": 0.25,
        "validation_loss": None,
        "validation_error": None,
        "test_loss": 2.0,
        "test_error": 0.5,
        "seconds": 1.5,
    }
    for epoch in (1, 2)
]


def test_the_checksum_is_the_masked_castagnoli():
    # The check value of CRC-32C, and the mask as TensorFlow's record format defines it.
    crc = 0xE3069283
    expected = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert checksum(b"123456789") == struct.pack("<I", expected)


def test_a_later_file_continues_an_earlier_one():
    # TensorBoard reads on from where it was.
    assert event_file(ROWS, 7.0).startswith(event_file(ROWS[:1], 7.0))


def scalars(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}


# Its own code calls what numpy and protobuf have deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_it(tmp_path):
    (tmp_path / "events.out.tfevents.oni").write_bytes(event_file(ROWS, 1000.0))
    found = scalars(tmp_path)
    assert set(found) == {"loss/train", "loss/test", "error/train", "error/test", "learning_rate"}
    assert [(each.step, each.value, each.wall_time) for each in found["loss/train"]] == [
        (234, 1.0, 1001.5),
        (468, 0.5, 1003.0),
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_of_a_run(tmp_path):
    config = Config(
        data="fashion-mnist-sample", network_options={"depth": 1, "width": 8}, epochs=2, samples=512, drops=()
    )
    result = train(config, tmp_path, progress="none")
    found = scalars(result.folder)
    assert [each.step for each in found["error/test"]] == [2, 4]
    assert [each.value for each in found["error/test"]] == pytest.approx([row["test_error"] for row in result.epochs])
