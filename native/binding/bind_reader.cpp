#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "host_weight_reader.hpp"
#include "waiting.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

std::vector<std::byte*> slot_memory(const View& slots) {
    slots.require_dimensions(2, "[slots, bytes]").require_bytes().require_contiguous();
    std::vector<std::byte*> memory;
    for (std::int64_t i = 0; i < slots.shape()[0]; ++i)
        memory.push_back(static_cast<std::byte*>(slots.data()) + i * slots.shape()[1]);
    return memory;
}

}  // namespace

HostWeightReader::HostWeightReader(const std::vector<std::vector<OpenFile>>& copies,
                                   const std::vector<LayerTuple>& layers, const Array& slots,
                                   const ReaderOptions& options)
    : memory_(slots) {
    std::vector<std::vector<WeightFile>> opened;
    for (const std::vector<OpenFile>& files : copies) {
        std::vector<WeightFile>& made = opened.emplace_back();
        for (const auto& [descriptor, path] : files) made.emplace_back(descriptor, path);
    }
    std::vector<LayerFiles> sources;
    for (const auto& [base, extents] : layers) {
        LayerFiles& made = sources.emplace_back();
        made.base = base;
        for (const auto& [file, offset, size, target] : extents)
            made.extents.push_back({file, offset, size, target});
    }
    const View view("slots", slots);
    std::vector<std::byte*> memory = slot_memory(view);
    reader_ = std::make_unique<WeightReader>(std::move(opened), sources, std::move(memory),
                                             view.shape()[1], options);
}

void bind_reader(nb::module_& module) {
    nb::class_<HostWeightReader>(module, "WeightReader")
        .def(
            "__init__",
            [](HostWeightReader* self, const std::vector<std::vector<OpenFile>>& copies,
               const std::vector<LayerTuple>& layers, const Array& slots, int num_threads,
               std::int64_t piece_bytes, std::int64_t alignment) {
                new (self) HostWeightReader(copies, layers, slots,
                                            {.num_threads = num_threads,
                                             .piece_bytes = piece_bytes,
                                             .alignment = alignment,
                                             .while_waiting = check_interrupts});
            },
            "copies"_a, "layers"_a, "slots"_a.noconvert(), "num_threads"_a, "piece_bytes"_a,
            "alignment"_a)
        .def(
            "acquire",
            [](HostWeightReader& self, int layer) {
                return self.reader().acquire(layer) - self.reader().first_slot();
            },
            "layer"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("release", [](HostWeightReader& self) { self.reader().release(); })
        .def(
            "stop", [](HostWeightReader& self) { self.reader().stop(); },
            nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("bytes_read",
                     [](HostWeightReader& self) { return self.reader().bytes_read(); });
}

}  // namespace tandem
