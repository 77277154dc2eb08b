#include "prefill_plan.hpp"

#include <algorithm>
#include <stdexcept>

#include "divide.hpp"

namespace tandem {
namespace {

constexpr int kPartsPerThread = 16;               // taken as threads become free
constexpr std::int64_t kMinPartWork = 1 << 21;    // multiplications of one product: some 50 us
constexpr int kAttendingPartsPerMerging = 8;      // which take far less time
constexpr std::int64_t kKeysOfOneQuery = 16;      // what reading and writing a query costs, in keys
constexpr std::int64_t kQueriesOfConversion = 6;  // what converting a key costs, in queries

}  // namespace

PrefillPlan::PrefillPlan(const AttentionShape& given, const AttentionArrays& arrays,
                         int num_threads)
    : AttentionRows(given, arrays) {
    if (num_threads <= 0) throw std::invalid_argument("num_threads must be positive");
    add_tiles();
    cut(num_threads);
    cut_merges();
}

// A row's tiles are as equal as can be, so that none is left with a few queries in wide vectors.
void PrefillPlan::add_tiles() {
    const std::int64_t most = std::max(1, kTileQueries / shape.group());
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(rows.size()); ++r) {
        const Row& row = rows[r];
        const std::int64_t count = divide_up(row.num_tokens, most);
        for (std::int32_t head = 0; head < shape.kv_heads; ++head)
            for (std::int64_t i = 0; i < count; ++i) {
                const auto begin = static_cast<std::int32_t>(row.num_tokens * i / count);
                const auto end = static_cast<std::int32_t>(row.num_tokens * (i + 1) / count);
                const std::int32_t first = row.first_token + begin;
                tiles.push_back({r, head, first, end - begin, first_seen[first],
                                 visible[row.first_token + end - 1]});
                max_tile_tokens = std::max(max_tile_tokens, end - begin);
            }
    }
}

std::int64_t PrefillPlan::work(const QueryTile& tile) const {
    std::int64_t keys = kKeysOfOneQuery * tile.num_tokens;
    for (std::int32_t t = tile.first_token; t < tile.first_token + tile.num_tokens; ++t)
        keys += visible[t] - first_seen[t];
    return (keys * shape.group() + kQueriesOfConversion * (tile.end - tile.begin)) * shape.head_dim;
}

void PrefillPlan::cut(int num_threads) {
    std::int64_t total = 0;
    for (const QueryTile& tile : tiles) total += work(tile);
    const std::int64_t parts = std::max<std::int64_t>(
        1, std::min(total / kMinPartWork, std::int64_t{num_threads} * kPartsPerThread));
    const std::int64_t part_work = total / parts;
    part_start.push_back(0);
    std::int64_t room = part_work;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(tiles.size()); ++i) {
        const QueryTile& tile = tiles[i];
        std::int64_t chunks = std::max<std::int64_t>(1, divide_up(tile.end - tile.begin, kRunKeys));
        const std::int64_t chunk_work = std::max<std::int64_t>(1, work(tile) / chunks);
        for (std::int32_t begin = tile.begin; chunks > 0;) {
            // A tile is cut only where it exceeds the part by more than half a part.
            const bool all = chunks * chunk_work <= room + part_work / 2;
            const std::int64_t take =
                all ? chunks : std::clamp<std::int64_t>(divide_up(room, chunk_work), 1, chunks);
            const std::int64_t end = std::min<std::int64_t>(tile.end, begin + take * kRunKeys);
            add_run({i, begin, static_cast<std::int32_t>(end), -1});
            begin = static_cast<std::int32_t>(end);
            chunks -= take;
            room -= take * chunk_work;
            if (room <= 0) {
                part_start.push_back(static_cast<std::int32_t>(runs.size()));
                room += part_work;
            }
        }
    }
    if (part_start.back() != static_cast<std::int32_t>(runs.size()) || runs.empty())
        part_start.push_back(static_cast<std::int32_t>(runs.size()));
}

void PrefillPlan::cut_merges() {
    const auto weight = [&](const TileMerge& merge) {
        return std::int64_t{merge.count} * tiles[merge.tile].num_tokens;
    };
    std::int64_t total = 0;
    for (const TileMerge& merge : merges) total += weight(merge);
    merge_start.push_back(0);
    EvenCut even(total,
                 std::max<std::int64_t>(num_attending_parts() / kAttendingPartsPerMerging, 1));
    for (std::size_t m = 0; m < merges.size(); ++m)
        if (even.ends_after(weight(merges[m])))
            merge_start.push_back(static_cast<std::int32_t>(m + 1));
}

void PrefillPlan::add_run(KeyRun run) {
    const QueryTile& tile = tiles[run.tile];
    if (run.begin != tile.begin || run.end != tile.end) {
        run.partial = num_partials++;
        if (run.begin == tile.begin)
            merges.push_back({run.tile, run.partial, 1});
        else
            ++merges.back().count;
    }
    runs.push_back(run);
}

}  // namespace tandem
