"""Tandem: an LLM inference engine that lets CPU, DRAM and disks work beside the GPU."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tandem.llm import LLM as LLM
    from tandem.spec.errors import TandemError as TandemError
    from tandem.spec.sampling import SamplingParams as SamplingParams

__all__ = ["LLM", "SamplingParams", "TandemError", "__version__"]


def __getattr__(name: str) -> object:
    """Import the public API lazily, so that `import tandem` stays free of torch."""
    if name == "LLM":
        from tandem.llm import LLM

        return LLM
    if name == "SamplingParams":
        from tandem.spec.sampling import SamplingParams

        return SamplingParams
    if name == "TandemError":
        from tandem.spec.errors import TandemError

        return TandemError
    raise AttributeError(f"module 'tandem' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is imported lazily is completed and listed, too."""
    return sorted({*globals(), *__all__})
