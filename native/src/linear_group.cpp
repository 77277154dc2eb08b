#include "linear_group.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace tandem {
namespace {

int checked_parts(const LinearMaps& maps) {
    if (maps.num_parts() == 0) throw std::invalid_argument("a group needs linear maps");
    return maps.num_parts();
}

}  // namespace

LinearMaps::LinearMaps(BufferStore& buffers, std::size_t most)
    : buffers_(buffers), memory_(buffers, most * sizeof(LinearJob)), ends_(buffers, most) {}

LinearMaps::~LinearMaps() {
    while (count_ > 0) std::destroy_at(at(--count_));
}

void LinearMaps::add(const LinearWeight& weight, const LinearCall& call, Isa isa, int num_threads) {
    const LinearJob* map = std::construct_at(at(count_), weight, call, isa, num_threads, buffers_);
    ends_[count_] = num_parts() + map->num_parts();
    ++count_;
}

void LinearMaps::run_part(int part) const {
    const auto ends = ends_.all().first(count_);
    const auto map = static_cast<std::size_t>(std::ranges::upper_bound(ends, part) - ends.begin());
    at(map)->run_part(part - (map > 0 ? ends[map - 1] : 0));
}

LinearGroupJob::LinearGroupJob(const LinearMaps& maps) : Job(checked_parts(maps)), maps_(maps) {}

}  // namespace tandem
