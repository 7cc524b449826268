"""Batches on their way to a device."""

from __future__ import annotations

import pytest
import torch

from relive.tensors import Uploader

FIELDS = [
    torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4),
    torch.tensor([1.5, -0.0, float("nan")]),
    torch.empty(0, 5),
    torch.tensor(7, dtype=torch.int64),
    torch.tensor([[True], [False]]),
    torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
    torch.arange(3, dtype=torch.int16),
]


def same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    bits = (got.cpu().contiguous().numpy().tobytes(), expected.contiguous().numpy().tobytes())
    return got.shape == expected.shape and got.dtype == expected.dtype and bits[0] == bits[1]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_batch_uploaded_as_one_is_the_same_batch(device: str) -> None:
    uploader = Uploader(torch.device(device))
    for fields in (FIELDS, FIELDS[::-1], FIELDS[:1], []):
        uploaded = uploader.upload_as_one(fields)
        assert len(uploaded) == len(fields)
        assert all(same(got, field) for got, field in zip(uploaded, fields, strict=True))
        assert all(same(got, field) for got, field in zip(uploader.upload(fields), fields, strict=True))


def test_uploaded_fields_are_tensors_of_their_own() -> None:
    ones = [torch.ones(3), torch.ones(2, 2)]
    uploaded = Uploader(torch.device("cpu")).upload_as_one(ones)
    versions = [part._version for part in uploaded]
    uploaded[0].mul_(5)
    assert [part._version for part in uploaded] == [versions[0] + 1, versions[1]]
    assert not any(part._is_view() for part in uploaded)
    assert (uploaded[1].unique().tolist(), ones[0].tolist()) == ([1], [1, 1, 1])
    assert all(part.data_ptr() % 64 == 0 for part in uploaded)
