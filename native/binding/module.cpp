// Python's view of the core. Every call that works or waits releases the interpreter.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "append.hpp"
#include "arrays.hpp"
#include "attention.hpp"
#include "attention_arrays.hpp"
#include "attention_plan.hpp"
#include "bind_copies.hpp"
#include "bind_layer.hpp"
#include "bind_linear.hpp"
#include "bind_sinks.hpp"
#include "bind_sweep.hpp"
#include "cpu_limit.hpp"
#include "host_signal.hpp"
#include "host_weight_reader.hpp"
#include "isa.hpp"
#include "merge.hpp"
#include "nothing.hpp"
#include "pages.hpp"
#include "pool.hpp"
#include "prefill.hpp"
#include "prefill_plan.hpp"
#include "read_probe.hpp"
#include "spin_probe.hpp"
#include "task.hpp"
#include "waiting.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

using PoolPointer = std::shared_ptr<Pool>;

const char* const kPagesMeaning = "[num_blocks, 2, kv_heads, block_size, head_dim]";

template <class Plan>
std::shared_ptr<Plan> make_plan(int heads, int kv_heads, int block_size, int head_dim,
                                const ReadOnlyArray& query_start, const ReadOnlyArray& positions,
                                const ReadOnlyArray& block_table,
                                const std::optional<ReadOnlyArray>& block_index,
                                const std::optional<ReadOnlyArray>& token_index, int num_threads,
                                int window, int code_bits) {
    const View starts("query_start", query_start), tokens("positions", positions);
    const View table("block_table", block_table);
    starts.require_dimensions(1, "[rows + 1]").require_contiguous();
    tokens.require_dimensions(1, "[tokens]").require_contiguous();
    table.require_dimensions(2, "[rows, max_blocks]").require_contiguous();
    starts.require_shape({table.shape()[0] + 1});
    AttentionArrays arrays{.query_start = starts.ints(),
                           .positions = tokens.ints(),
                           .block_table = table.ints(),
                           .block_index = {},
                           .token_index = {},
                           .selects_tokens = token_index.has_value(),
                           .window = window};
    if (block_index) {
        const View index("block_index", *block_index);
        arrays.block_index = index.require_shape(table.shape()).require_contiguous().ints();
    }
    if (token_index) {
        const View index("token_index", *token_index);
        arrays.token_index = index.require_shape(tokens.shape()).require_contiguous().longs();
    }
    nb::gil_scoped_release release;
    return std::make_shared<Plan>(AttentionShape{heads, kv_heads, block_size, head_dim, code_bits},
                                  arrays, num_threads);
}

template <class Job, class Plan>
std::unique_ptr<Task> attention_task(const PoolPointer& pool, const std::shared_ptr<Plan>& plan,
                                     const ReadOnlyArray& q, const ReadOnlyArray& pages,
                                     const Array& out, const Array& lse, double scale,
                                     double soft_cap, const std::string& isa,
                                     const std::optional<ReadOnlyArray>& sinks) {
    const View page("pages", pages);
    const DType type = check_pages(page, plan->shape);
    const AttentionMemory memory =
        check_attention(*plan, View("q", q), {page.data(), type, page.shape()[0]}, View("out", out),
                        View("lse", lse), sinks);
    auto job =
        std::make_unique<Job>(plan, memory, static_cast<float>(scale), static_cast<float>(soft_cap),
                              choose_isa(isa), pool->buffers());
    return std::make_unique<Task>(
        pool,
        std::vector<nb::object>{nb::cast(q), nb::cast(pages), nb::cast(out), nb::cast(lse),
                                nb::cast(sinks)},
        std::move(job));
}

std::unique_ptr<Task> append_task(const PoolPointer& pool, const Array& pages,
                                  const ReadOnlyArray& k, const ReadOnlyArray& v,
                                  const ReadOnlyArray& slots, int code_bits, int block_size) {
    const View page("pages", pages), keys("k", k), values("v", v), slot("slots", slots);
    keys.require_dimensions(3, "[tokens, kv_heads, head_dim]");
    if (code_bits == 0) page.require_dimensions(5, kPagesMeaning);
    require(code_bits == 0 || block_size > 0, "block_size must be positive");
    const AttentionShape shape{
        .heads = 0,
        .kv_heads = static_cast<int>(code_bits ? keys.shape()[1] : page.shape()[2]),
        .block_size = static_cast<int>(code_bits ? block_size : page.shape()[3]),
        .head_dim = static_cast<int>(code_bits ? keys.shape()[2] : page.shape()[4]),
        .code_bits = code_bits,
    };
    const DType type = check_pages(page, shape);
    const AppendMemory memory =
        check_append(shape, {page.data(), type, page.shape()[0]}, keys, values, slot);
    return std::make_unique<Task>(
        pool, std::vector<nb::object>{nb::cast(pages), nb::cast(k), nb::cast(v), nb::cast(slots)},
        std::make_unique<AppendJob>(memory, pool->num_threads(), pool->buffers()));
}

std::unique_ptr<Task> merge_task(const PoolPointer& pool, const ReadOnlyArray& out_a,
                                 const ReadOnlyArray& lse_a, const ReadOnlyArray& out_b,
                                 const ReadOnlyArray& lse_b, const Array& out, const Array& lse) {
    const View result("out", out), log("lse", lse);
    result.require_dimensions(3, "[tokens, heads, head_dim]").require_contiguous();
    const Sizes states{result.shape()[0], result.shape()[1]};
    log.require_shape(states).require_contiguous();
    const auto sums = [&](const char* name, const ReadOnlyArray& array) {
        const View view(name, array);
        return view.require_shape(result.shape()).require_contiguous().floats();
    };
    const auto logs = [&](const char* name, const ReadOnlyArray& array) {
        const View view(name, array);
        return view.require_shape(states).require_contiguous().floats();
    };
    const MergeMemory memory{.out_a = sums("out_a", out_a),
                             .lse_a = logs("lse_a", lse_a),
                             .out_b = sums("out_b", out_b),
                             .lse_b = logs("lse_b", lse_b),
                             .out = result.floats(),
                             .lse = log.floats(),
                             .rows = states[0] * states[1],
                             .head_dim = result.shape()[2]};
    return std::make_unique<Task>(
        pool,
        std::vector<nb::object>{nb::cast(out_a), nb::cast(lse_a), nb::cast(out_b), nb::cast(lse_b),
                                nb::cast(out), nb::cast(lse)},
        std::make_unique<MergeJob>(memory, pool->num_threads()));
}

std::unique_ptr<Task> nothing_task(const PoolPointer& pool) {
    return std::make_unique<Task>(pool, std::vector<nb::object>{}, std::make_unique<Nothing>());
}

// Seconds that the pool's threads took to read all of the array once.
double read_seconds(const PoolPointer& pool, const ReadOnlyArray& array) {
    constexpr int kPartsPerThread = 8;
    const View view("array", array);
    view.require_contiguous();
    ReadProbe probe(static_cast<const std::uint64_t*>(view.data()), array.nbytes() / 8,
                    pool->num_threads() * kPartsPerThread);
    nb::gil_scoped_release release;
    pool->submit(probe);
    pool->wait(probe, std::chrono::steady_clock::time_point::max());
    return static_cast<double>(probe.end_ns() - probe.start_ns()) * 1e-9;
}

std::vector<std::string> isa_names() {
    std::vector<std::string> names;
    for (Isa isa : supported_isas()) names.emplace_back(isa_name(isa));
    return names;
}

void bind_signal(nb::module_& module) {
    nb::class_<HostSignal>(module, "Signal")
        .def(nb::init<std::uint32_t, std::optional<std::uintptr_t>>(), "value"_a = 0,
             "address"_a = nb::none())
        .def_prop_ro("value", &HostSignal::value)
        .def_prop_ro("address", &HostSignal::address)
        .def("set", &HostSignal::set, "value"_a, nb::call_guard<nb::gil_scoped_release>())
        .def(
            "reached",
            [](const HostSignal& self, std::uint32_t value) {
                return reached(self.value(), value);
            },
            "value"_a)
        .def(
            "wait",
            [](HostSignal& self, std::uint32_t value, std::optional<double> timeout_s) {
                return wait_in_slices(
                    timeout_s, [&](auto until) { return wait_for(self.counter(), value, until); });
            },
            "value"_a, "timeout_s"_a = nb::none());
}

void bind_pool(nb::module_& module) {
    nb::class_<Pool>(module, "Pool")
        .def(
            "__init__",
            [](Pool* self, int num_threads, bool pin, int spin_us) {
                require(spin_us >= 0, "spin_us must not be negative");
                new (self) Pool({num_threads, pin, std::chrono::microseconds(spin_us)});
            },
            "num_threads"_a = 0, "pin"_a = false, "spin_us"_a = 50)
        .def_prop_ro("num_threads", &Pool::num_threads)
        .def("resize", &Pool::resize, "num_threads"_a, nb::call_guard<nb::gil_scoped_release>());
}

// Arrays are taken as they are: a converted copy would be read, or worse, written.
template <class Job, class Plan>
void bind_attention(nb::module_& module, const char* plan) {
    nb::class_<Plan>(module, plan)
        .def(nb::new_(&make_plan<Plan>), "heads"_a, "kv_heads"_a, "block_size"_a, "head_dim"_a,
             "query_start"_a, "positions"_a, "block_table"_a, "block_index"_a.none(),
             "token_index"_a.none(), "num_threads"_a, "window"_a = 0, "code_bits"_a = 0)
        .def_ro("num_tokens", &Plan::num_tokens)
        .def_ro("total_keys", &Plan::total_keys)
        .def_prop_ro("num_parts", &Plan::num_parts);
    module.def("attention", &attention_task<Job, Plan>, "pool"_a, "plan"_a, "q"_a.noconvert(),
               "pages"_a.noconvert(), "out"_a.noconvert(), "lse"_a.noconvert(), "scale"_a,
               "soft_cap"_a, "isa"_a, "sinks"_a.noconvert().none() = nb::none());
}

void bind_work(nb::module_& module) {
    bind_attention<AttentionJob, AttentionPlan>(module, "AttentionPlan");
    bind_attention<PrefillJob, PrefillPlan>(module, "PrefillPlan");
    nb::class_<Task>(module, "Task")
        .def("submit", &Task::submit, "after"_a = Points{}, "then"_a.none() = nb::none())
        .def("cancel", &Task::cancel)
        .def("run", &Task::run)
        .def("wait", &Task::wait, "timeout_s"_a = nb::none())
        .def_prop_ro("done", [](const Task& self) { return self.job().done(); })
        .def_prop_ro("start_ns", [](const Task& self) { return self.job().start_ns(); })
        .def_prop_ro("end_ns", [](const Task& self) { return self.job().end_ns(); });
    module.def("nothing", &nothing_task, "pool"_a);
    module.def("append", &append_task, "pool"_a, "pages"_a.noconvert(), "k"_a.noconvert(),
               "v"_a.noconvert(), "slots"_a.noconvert(), "code_bits"_a = 0, "block_size"_a = 0);
    module.def("merge", &merge_task, "pool"_a, "out_a"_a.noconvert(), "lse_a"_a.noconvert(),
               "out_b"_a.noconvert(), "lse_b"_a.noconvert(), "out"_a.noconvert(),
               "lse"_a.noconvert());
}

}  // namespace
}  // namespace tandem

NB_MODULE(_native, module) {
    using namespace nanobind::literals;
    module.def("isa_names", &tandem::isa_names);
    module.def(
        "choose_isa",
        [](const std::string& name) { return tandem::isa_name(tandem::choose_isa(name)); },
        "name"_a);
    module.def("default_num_threads", &tandem::default_num_threads, "root"_a = "/");
    module.def("read_seconds", &tandem::read_seconds, "pool"_a, "array"_a.noconvert());
    module.def("spin_round_trips", &tandem::spin_round_trips, "rounds"_a,
               nanobind::call_guard<nanobind::gil_scoped_release>());
    tandem::bind_signal(module);
    tandem::bind_pool(module);
    tandem::bind_work(module);
    tandem::bind_linear(module);
    tandem::bind_reader(module);
    tandem::bind_layer(module);
    tandem::bind_sinks(module);
    tandem::bind_copies(module);
    tandem::bind_sweep(module);
}
