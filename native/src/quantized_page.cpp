#include "quantized_page.hpp"

#include <stdexcept>
#include <string>

namespace tandem {

void QuantizedPage::check() const {
    if (bits != 8 && bits != 4)
        throw std::invalid_argument("pages are quantized to 8 or 4 bits, not " +
                                    std::to_string(bits));
    if (head_dim < 1 || head_dim > kMaxCodeDim)
        throw std::invalid_argument("head_dim of quantized pages must be 1 to " +
                                    std::to_string(kMaxCodeDim) + ", not " +
                                    std::to_string(head_dim));
}

}  // namespace tandem
