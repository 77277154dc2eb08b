"""Tests in this folder carry the `gpu` marker and are skipped where there is no CUDA device.

They import no pytest and take no fixtures, so that `make gpu-check` runs them without pytest too.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker: `make gpu-check` runs without the project's pytest settings."""
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests, and skip them where they cannot run."""
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    if not ours:
        return
    import torch

    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
