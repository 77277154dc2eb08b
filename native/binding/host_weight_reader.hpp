// A reader of weights into slots that are arrays of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "weight_reader.hpp"

namespace tandem {

using OpenFile = std::pair<int, std::string>;  // descriptor and path
using ExtentTuple = std::tuple<int, std::int64_t, std::int64_t, std::int64_t>;
using LayerTuple = std::pair<std::int64_t, std::vector<ExtentTuple>>;

// Keeps the slots alive until its threads have ended.
class HostWeightReader {
  public:
    // copies: the files that these are read from, of each copy.
    // layers: of each, where it begins in a slot, and (file, offset, size, target) of what it is
    // read from.
    // slots: uint8 [slots, bytes].
    HostWeightReader(const std::vector<std::vector<OpenFile>>& copies,
                     const std::vector<LayerTuple>& layers, const Array& slots,
                     const ReaderOptions& options);

    WeightReader& reader() { return *reader_; }

  private:
    Array memory_;
    std::unique_ptr<WeightReader> reader_;
};

void bind_reader(nb::module_& module);

}  // namespace tandem
