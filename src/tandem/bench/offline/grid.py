"""The papers' own points: the lengths and sizes of job by which each compares its policy.

A job has what a paper's block takes, twice for LM-Offload, so that blocks follow each other; how
many sequences are in a batch each policy chooses by itself.
"""

from tandem.bench.offline.cell import CellName
from tandem.bench.online.cell import Load

_KVPR = ("a100-40", "kvpr")
_KVPR_MODELS = ("opt-6.7b", "opt-13b", "opt-30b")
_KVPR_BATCHES = 8
_KVPR_LENGTHS = tuple(Load(given, out) for given in (256, 512, 1024) for out in (32, 128))
"""Figure 7, first row, by 8 batches of 32."""
_KVPR_SIZES = (1, 8, 16, 48)
"""Its second row has batches of 1 to 48, 1,024 tokens in and 32 out; 32 is in the first."""
_LM_OFFLOAD = ("a100-40", "lm-offload")
_LM_OFFLOAD_PROMPT, _LM_OFFLOAD_LENGTHS = 64, (8, 16, 32, 64, 128)
_LM_OFFLOAD_ROWS = {
    "opt-30b": (1792, 1600, 1344, 960, 640),
    "opt-66b": (780, 828, 702, 720, 480),
    "llama-1-30b": (1536, 1408, 1152, 832, 576),
    "llama-1-65b": (1140, 1020, 616, 616, 392),
}
"""Table 3: sequences by generated tokens."""
_PARK_EGGER_LOAD, _PARK_EGGER_ROWS = Load(512, 32), (50, 100)
"""Section 5.3 and tables 6 to 8: OPT-30B, one batch."""
_PARK_EGGER_LAYERS = 12
"""With 8, two slots for layers are nearly all of the memory."""

GRID = (
    *(
        CellName(*_KVPR, model, load, _KVPR_BATCHES * 32)
        for model in _KVPR_MODELS
        for load in _KVPR_LENGTHS
    ),
    *(
        CellName(*_KVPR, model, Load(1024, 32), _KVPR_BATCHES * rows)
        for model in _KVPR_MODELS
        for rows in _KVPR_SIZES
    ),
    *(
        CellName(*_LM_OFFLOAD, model, Load(_LM_OFFLOAD_PROMPT, out), 2 * rows)
        for model, sizes in _LM_OFFLOAD_ROWS.items()
        for out, rows in zip(_LM_OFFLOAD_LENGTHS, sizes, strict=True)
    ),
    *(
        CellName("a4000", "park-egger", "opt-30b", _PARK_EGGER_LOAD, rows, _PARK_EGGER_LAYERS)
        for rows in _PARK_EGGER_ROWS
    ),
)
