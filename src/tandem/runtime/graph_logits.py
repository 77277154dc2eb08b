"""What a whole step's graph leaves."""

from dataclasses import dataclass

from torch import Tensor

from tandem.kernels.sampling import Likeliest


@dataclass(frozen=True, slots=True)
class GraphLogits:
    """Logits with what is greedily chosen of them; both hold until the next graph is launched.

    Attributes:
        logits: float32 [rows, vocab].
    """

    logits: Tensor
    likeliest: Likeliest

    @property
    def size_bytes(self) -> int:
        """As `BufferSpace` counts."""
        held = self.logits, self.likeliest.token_ids, self.likeliest.valid
        return sum(tensor.nbytes for tensor in held)
