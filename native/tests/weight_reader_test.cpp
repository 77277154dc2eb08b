// Random layers in random places of random files, read round and round; built with sanitizers.
#include "weight_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"

namespace {

using namespace tandem;

using Random = std::mt19937;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kPiece = 2 * kBlock;

std::int64_t draw(Random& random, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// A file of random bytes that is gone with this object.
struct TempFile {
    std::string path = "weight_reader_test_XXXXXX";
    int descriptor = -1;
    Bytes content;

    TempFile(Random& random, std::int64_t size) : TempFile(drawn(random, size)) {}
    explicit TempFile(Bytes bytes) : content(std::move(bytes)) {
        descriptor = mkstemp(path.data());
        CHECK(descriptor >= 0);
        CHECK(pwrite(descriptor, content.data(), content.size(), 0) == std::ssize(content));
    }
    ~TempFile() {
        close(descriptor);
        unlink(path.c_str());
    }
    TempFile(const TempFile&) = delete;

  private:
    static Bytes drawn(Random& random, std::int64_t size) {
        Bytes bytes(static_cast<std::size_t>(size));
        for (std::byte& each : bytes) each = std::byte(random());
        return bytes;
    }
};

struct FreeBlocks {
    void operator()(std::byte* memory) const {
        ::operator delete(memory, std::align_val_t{kBlock});
    }
};

// Slots of exactly the size that may be written.
struct Slots {
    std::vector<std::unique_ptr<std::byte, FreeBlocks>> memory;

    Slots(std::size_t count, std::int64_t size) {
        for (std::size_t i = 0; i < count; ++i)
            memory.emplace_back(static_cast<std::byte*>(
                ::operator new(static_cast<std::size_t>(size), std::align_val_t{kBlock})));
    }
    std::vector<std::byte*> pointers() const {
        std::vector<std::byte*> all;
        for (const auto& slot : memory) all.push_back(slot.get());
        return all;
    }
};

// A layer out of one to four runs of bytes, without gaps in memory.
LayerFiles draw_layer(Random& random, const std::vector<std::unique_ptr<TempFile>>& files) {
    LayerFiles layer;
    layer.base = draw(random, 0, kBlock - 1);
    std::int64_t target = 0;
    for (std::int64_t runs = draw(random, 1, 4); runs > 0; --runs) {
        const auto file = static_cast<int>(draw(random, 0, std::ssize(files) - 1));
        const std::int64_t size_of_file = std::ssize(files[std::size_t(file)]->content);
        const bool aligned = draw(random, 0, 1);
        std::int64_t offset = draw(random, 0, size_of_file - 1);
        if (aligned) offset -= offset % kBlock;
        const std::int64_t size = draw(random, 1, size_of_file - offset);
        layer.extents.push_back({file, offset, size, target});
        target += size;
    }
    if (draw(random, 0, 1)) layer.base = layer.extents[0].offset % kBlock;
    return layer;
}

std::int64_t size_of(const LayerFiles& layer) {
    return layer.base + layer.extents.back().target + layer.extents.back().size;
}

void check_content(const LayerFiles& layer, const std::byte* memory,
                   const std::vector<std::unique_ptr<TempFile>>& files) {
    for (const FileExtent& extent : layer.extents)
        CHECK(std::memcmp(memory + extent.target,
                          files[std::size_t(extent.file)]->content.data() + extent.offset,
                          std::size_t(extent.size)) == 0);
}

using Copies = std::vector<std::vector<WeightFile>>;

Copies one_copy(int descriptor, const std::string& path) {
    Copies copies(1);
    copies[0].emplace_back(descriptor, path);
    return copies;
}

void check_random_layers(unsigned seed) {
    Random random(seed);
    std::vector<std::unique_ptr<TempFile>> files;
    std::vector<std::unique_ptr<TempFile>> others;
    Copies opened(std::size_t(draw(random, 1, 3)));
    for (std::int64_t i = draw(random, 1, 3); i > 0; --i) {
        files.push_back(std::make_unique<TempFile>(random, draw(random, 1, 10 * kBlock)));
        opened[0].emplace_back(files.back()->descriptor, files.back()->path);
        for (std::size_t copy = 1; copy < opened.size(); ++copy) {
            others.push_back(std::make_unique<TempFile>(files.back()->content));
            opened[copy].emplace_back(others.back()->descriptor, others.back()->path);
        }
    }
    std::vector<LayerFiles> layers;
    std::int64_t slot_bytes = 1;
    for (std::int64_t i = draw(random, 1, 5); i > 0; --i) {
        layers.push_back(draw_layer(random, files));
        slot_bytes = std::max(slot_bytes, size_of(layers.back()));
    }
    const Slots slots(std::size_t(draw(random, 1, 3)), slot_bytes);
    const ReaderOptions options{.num_threads = int(draw(random, 1, 4)),
                                .piece_bytes = kPiece,
                                .alignment = draw(random, 0, 1) ? kBlock : 1};
    WeightReader reader(std::move(opened), layers, slots.pointers(), slot_bytes, options);
    // at most so many in use at once
    const std::int64_t held = draw(random, 1, std::ssize(slots.memory));
    std::deque<std::pair<int, const std::byte*>> in_use;
    for (int turn = 0; turn < 3 * reader.num_layers(); ++turn) {
        if (std::ssize(in_use) == held) {
            const auto [layer, memory] = in_use.front();
            check_content(layers[std::size_t(layer)], memory, files);  // still what it was
            in_use.pop_front();
            reader.release();
        }
        const int layer = turn % reader.num_layers();
        in_use.emplace_back(layer, reader.acquire(layer));
        check_content(layers[std::size_t(layer)], in_use.back().second, files);
    }
}

template <class Error, class Call>
std::string message_of(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    CHECK(!"nothing was thrown");
    return {};
}

// Uses layers until it fails.
template <class Error>
std::string failure_of(WeightReader& reader) {
    return message_of<Error>([&] {
        for (int i = 0; i < 100; ++i) {
            reader.acquire(i % reader.num_layers());
            reader.release();
        }
    });
}

struct TwoLayers {
    Random random{7};
    TempFile file{random, 4 * kBlock};
    Slots slots{1, 2 * kBlock};
    std::vector<LayerFiles> layers{{{{0, 0, 2 * kBlock, 0}}, 0},
                                   {{{0, 2 * kBlock, 2 * kBlock, 0}}, 0}};
    std::unique_ptr<WeightReader> reader;

    TwoLayers() {
        reader = std::make_unique<WeightReader>(one_copy(file.descriptor, file.path), layers,
                                                slots.pointers(), 2 * kBlock,
                                                ReaderOptions{2, kPiece, kBlock});
    }
};

void check_errors() {
    {
        TwoLayers cut;
        CHECK(ftruncate(cut.file.descriptor, kBlock) == 0);
        CHECK(failure_of<std::runtime_error>(*cut.reader).find("while its weights were in use") !=
              std::string::npos);
        CHECK(!failure_of<std::runtime_error>(*cut.reader).empty());  // it stays so
    }
    {
        TwoLayers changed;
        const timespec times[2] = {{1, 0}, {1, 0}};
        CHECK(pwrite(changed.file.descriptor, "x", 1, 0) == 1);
        CHECK(futimens(changed.file.descriptor, times) == 0);
        CHECK(failure_of<std::runtime_error>(*changed.reader).find("was changed") !=
              std::string::npos);
    }
    {
        TwoLayers skipped;
        CHECK(!message_of<std::logic_error>([&] { skipped.reader->acquire(1); }).empty());
        skipped.reader->stop();
        skipped.reader->stop();
        CHECK(!failure_of<std::runtime_error>(*skipped.reader).empty());
    }
    {
        TwoLayers held;
        CHECK(message_of<std::logic_error>([&] { held.reader->release(); }) ==
              "no layer is in use");
        held.reader->acquire(0);  // of one slot
        CHECK(message_of<std::logic_error>([&] {
                  held.reader->acquire(1);
              }).starts_with("every slot is in use"));
    }
    {
        TwoLayers beyond;
        beyond.layers[0].extents[0].size = 5 * kBlock;
        CHECK(message_of<std::invalid_argument>([&] {
                  WeightReader(one_copy(beyond.file.descriptor, beyond.file.path), beyond.layers,
                               beyond.slots.pointers(), 8 * kBlock, {});
              }).find("beyond its file's end") != std::string::npos);
    }
    {
        TwoLayers other;
        const TempFile shorter(other.random, 3 * kBlock);
        Copies copies = one_copy(other.file.descriptor, other.file.path);
        copies.push_back(std::move(one_copy(shorter.descriptor, shorter.path)[0]));
        CHECK(message_of<std::invalid_argument>([&] {
                  WeightReader(std::move(copies), other.layers, other.slots.pointers(), 2 * kBlock,
                               {});
              }).find("as large as they are") != std::string::npos);
    }
    std::vector<FileExtent> pieces = cut_pieces({{0, 10, 30, 5}}, 16);
    CHECK(pieces.size() == 3 && pieces[0].size == 6 && pieces[1].offset == 16 &&
          pieces[1].target == 11 && pieces[2].size == 8);
}

// Who waits for a layer is asked from time to time whether to go on.
void check_interrupts() {
    struct Interrupt {};
    Random random(7);
    const TempFile file(random, kPiece);
    const Slots slots(1, kPiece);
    LayerFiles layer;  // the same bytes again and again: takes longer than anybody waits
    for (int i = 0; i < 1'000'000; ++i) layer.extents.push_back({0, 0, kPiece, 0});
    WeightReader reader(
        one_copy(file.descriptor, file.path), {layer}, slots.pointers(), kPiece,
        {.num_threads = 1, .piece_bytes = kPiece, .alignment = kBlock, .while_waiting = [] {
             throw Interrupt();
         }});
    bool interrupted = false;
    try {
        reader.acquire(0);
    } catch (const Interrupt&) {
        interrupted = true;
    }
    CHECK(interrupted);
    CHECK(message_of<std::logic_error>([&] { reader.release(); }) == "no layer is in use");
}

void check_several_stop() {
    for (int round = 0; round < 20; ++round) {
        TwoLayers layers;
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) threads.emplace_back([&] { layers.reader->stop(); });
        for (std::thread& thread : threads) thread.join();
    }
}

}  // namespace

int main() {
    for (unsigned seed = 0; seed < 300; ++seed) check_random_layers(seed);
    check_errors();
    check_interrupts();
    check_several_stop();
}
