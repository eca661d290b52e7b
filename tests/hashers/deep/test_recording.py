"""Steps that are recorded and replayed: the same effect as steps that are run one by one."""

from __future__ import annotations

import unittest.mock
import warnings

import numpy as np
import pytest

from fusehash import datasets, hashers
from fusehash.errors import FusehashWarning
from untuned import DEEP

DATA = datasets.make_paired(400, views={"image": 12, "text": 9}, n_classes=3, random_state=0)


@pytest.fixture
def torch(optional):
    return optional("torch")


class Tape:
    """A recorder as that of a GPU: it keeps where the inputs are, and reads them again when it replays."""

    def __init__(self):
        self.run_sizes, self.n_recorded, self.n_replayed = [], 0, 0

    def run(self, step, inputs):
        self.run_sizes.append(len(inputs[0]))
        step(*inputs)

    def record(self, step, inputs):
        self.n_recorded += 1

        def replay():
            self.n_replayed += 1
            step(*inputs)

        return replay


def test_a_step_is_recorded_once_and_sees_the_inputs_of_every_call(torch):
    from fusehash.hashers.deep.recording import FIRST_CALLS, RecordedStep

    total, tape = torch.zeros(2), Tape()
    step = RecordedStep(lambda x, factor: total.add_((factor * x).sum(0)), tape)
    calls = [(torch.full((size, 2), float(i)), torch.tensor([0.5 + i])) for i, size in enumerate([4, 4, 4, 4, 3, 4, 4])]
    for call in calls:
        step(*call)
    assert torch.equal(total, sum((factor * x).sum(0) for x, factor in calls))
    assert tape.run_sizes == [4] * FIRST_CALLS + [3]  # what has another shape is run as it is
    assert (tape.n_recorded, tape.n_replayed) == (1, 3)
    assert torch.equal(calls[3][0], torch.full((4, 2), 3.0))  # inputs of the caller stay as they are


@pytest.mark.parametrize(("message", "said"), [("no graph.\nmore", "no graph."), ("", "RuntimeError.")])
def test_steps_that_cannot_be_recorded_are_run(torch, monkeypatch, message, said):
    from fusehash.hashers.deep.recording import CudaRecorder

    def fail(*arguments, **options):
        raise RuntimeError(message)

    monkeypatch.setattr(CudaRecorder, "__init__", lambda self: None)
    recorder = CudaRecorder()
    recorder._generator = recorder._stream = unittest.mock.MagicMock()
    for name in ("CUDAGraph", "current_stream", "set_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, unittest.mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "graph", fail)
    total = torch.zeros(2)
    with pytest.warns(FusehashWarning, match="could not be recorded") as seen:
        repeat = recorder.record(total.add_, [torch.ones(2)])
    assert str(seen[0].message).endswith(f"PyTorch says: {said}")
    repeat()
    assert total.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", sorted(DEEP))
def test_methods_learn_the_same_from_recorded_steps(torch, monkeypatch, name):
    """On the CPU, with a tape in the place of a graph: a step knows its batch from its inputs alone."""
    from fusehash.hashers.deep.recording import RecordedStep
    from fusehash.hashers.deep.training import Training

    def fitted():
        params = {**DEEP[name], "n_bits": 16, "epochs": 3, "batch_size": 32, "random_state": 0}
        return hashers.make(name, **params).fit(DATA.views, DATA.labels)

    tapes, plain = [], fitted()

    def recorded(self, step):
        tapes.append(Tape())
        return RecordedStep(step, tapes[-1])

    monkeypatch.setattr(Training, "recorded", recorded)
    again = fitted()
    assert sum(tape.n_replayed for tape in tapes) > 10
    assert np.array_equal(again.objective_, plain.objective_)
    for view in DATA.views:
        for one, other in zip(again.heads_[view], plain.heads_[view], strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("name", sorted(DEEP))
def test_a_gpu_learns_the_same_with_and_without_recording(torch, monkeypatch, name):
    from fusehash.hashers.deep import training

    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    losses = []
    for record in (True, False):
        monkeypatch.setattr(training, "RECORD", record)
        params = {**DEEP[name], "n_bits": 16, "epochs": 3, "batch_size": 32, "random_state": 0, "device": "cuda"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # that steps could not be recorded
            losses.append(hashers.make(name, **params).fit(DATA.views, DATA.labels).objective_)
    assert np.allclose(*losses, rtol=0.1)  # random numbers of dropout differ
