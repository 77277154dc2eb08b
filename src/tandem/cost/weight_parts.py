"""What comes of a layer that comes in parts (KVPR's fine-grained order, section 3.3)."""

from collections.abc import Mapping

from tandem.plan.program import Part
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import (
    key_value_matrix_bytes,
    layer_matrix_bytes,
    projection_matrix_bytes,
)
from tandem.spec.precision import Precision


def weight_part_bytes(model: ModelSpec, precision: Precision, layer: int) -> Mapping[Part, int]:
    """Bytes of each part of a layer's linear maps. `KEYS_VALUES` and `QUERIES` are `PRE`, which is
    the whole with `POST`.
    """
    whole = layer_matrix_bytes(model, precision, layer)
    before = projection_matrix_bytes(model, precision, layer)
    keys_values = key_value_matrix_bytes(model, precision, layer)
    return {
        Part.KEYS_VALUES: keys_values,
        Part.QUERIES: before - keys_values,
        Part.PRE: before,
        Part.POST: whole - before,
    }
