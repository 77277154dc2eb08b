#include "wave_job.hpp"

#include <algorithm>
#include <cmath>

#include "require.hpp"

namespace tandem::planner {
namespace {

constexpr double kRounding = 1e-6;  // of a token
// Sums of so many tokens, over two million requests, are whole and exact as doubles too.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;

bool positive(double number) { return std::isfinite(number) && number > 0; }

void check(const Wave& wave, const std::vector<RequestShape>& shapes) {
    require(!shapes.empty(), "a job needs a request");
    require(wave.places > 0 && wave.block_size > 0, "places and block_size must be positive");
    require(positive(wave.prompt_tokens) && positive(wave.each),
            "prompt_tokens and each must be positive");
    for (const Home& home : wave.homes) {
        require(home.blocks >= 0 && home.blocks <= kMostTokens, "blocks must be from 0 to 2^32");
        require(positive(home.sweeps_per_token), "sweeps_per_token must be positive");
        require(std::isfinite(home.sweeps_per_prompt) && std::isfinite(home.sweeps_leaving),
                "sweeps of a prompt must be finite");
    }
    for (const RequestShape& shape : shapes) {
        require(shape.prompt_tokens >= 1 && shape.generated_tokens >= 1 &&
                    shape.prompt_tokens <= kMostTokens && shape.generated_tokens <= kMostTokens,
                "tokens must be from 1 to 2^32");
    }
}

}  // namespace

// Tokens that it decodes in so many sweeps from this one on.
double WaveJob::Row::gained(double sweep, double sweeps) const {
    const double decoding = sweep + sweeps - begins;
    if (decoding <= 0) return 0.0;
    const double gained = (decoding > sweeps ? sweeps : decoding) / pace;
    const double left = end - tokens;
    return gained > left ? left : gained;
}

WaveJob::WaveJob(const Wave& wave, const std::vector<RequestShape>& shapes, const SweepS& sweep_s)
    : wave_(wave),
      sweep_s_(sweep_s),
      begun_s_(shapes.size()),
      first_s_(shapes.size(), -1.0),
      decoding_s_(shapes.size()),
      home_of_(shapes.size()),
      has_begun_(shapes.size()) {
    check(wave, shapes);
    std::int64_t prompt_tokens = 0;
    waiting_.reserve(shapes.size());
    for (std::size_t number = shapes.size(); number-- > 0;) {
        const RequestShape& shape = shapes[number];
        waiting_.push_back({static_cast<std::int64_t>(number),
                            static_cast<double>(shape.prompt_tokens),
                            static_cast<double>(shape.prompt_tokens + shape.generated_tokens - 1)});
        prompt_tokens += shape.prompt_tokens;
    }
    prompt_tokens_ = static_cast<double>(prompt_tokens) / static_cast<double>(shapes.size());
    for (int home = 0; home < 2; ++home) {
        free_[home] = wave.homes[home].blocks;
        // What no home holds lies in several: it fills the largest one that anybody may be in.
        if (wave.homes[home].most > 0) most_blocks_ = std::max(most_blocks_, free_[home]);
    }
    require(most_blocks_ > 0, "no home has room for a request");
}

double WaveJob::run() {
    while (!rows_.empty() || !waiting_.empty()) {
        admit();
        require(!rows_.empty(), "a request fits no home alone");
        const double sweeps = sweeps_until_event();
        grow(sweeps);
        time_s_ += advance(sweeps);
    }
    return time_s_;
}

std::int64_t WaveJob::blocks(double tokens) const {
    const double whole = std::ceil(tokens / static_cast<double>(wave_.block_size));
    return std::min(std::max(std::int64_t{1}, static_cast<std::int64_t>(whole)), most_blocks_);
}

void WaveJob::admit() {
    while (!waiting_.empty() && static_cast<std::int64_t>(rows_.size()) < wave_.places) {
        const Waiting next = waiting_.back();
        const std::int64_t need = blocks(next.tokens);
        const std::optional<int> home = home_for(need, blocks(next.end));
        if (!home) return;
        waiting_.pop_back();
        if (!has_begun_[next.number]) {
            has_begun_[next.number] = true;
            begun_s_[next.number] = time_s_;
        }
        free_[*home] -= need;
        ++there_[*home];
        const Home& there = wave_.homes[*home];
        const Row row{next.number,
                      next.tokens,
                      next.end,
                      *home,
                      there.sweeps_per_token,
                      begins(next.tokens, there),
                      need,
                      0.0};
        const auto place = std::upper_bound(
            rows_.begin(), rows_.end(), row.number,
            [](std::int64_t number, const Row& other) { return number < other.number; });
        rows_.insert(place, row);
    }
}

std::optional<int> WaveJob::home_for(std::int64_t need, std::int64_t longest) const {
    for (int number = 0; number < 2; ++number) {
        const Home& home = wave_.homes[number];
        const std::int64_t kept =
            std::min(static_cast<std::int64_t>(rows_.size()), home.most_reserved);
        const bool holds = longest <= home.blocks && need + kept <= free_[number];
        if (there_[number] < home.most && holds) return number;
    }
    return std::nullopt;
}

// Sweep before which a request reads so many, behind the others' prompts, and leaves.
double WaveJob::begins(double tokens, const Home& there) {
    const double reads = std::max(tokens / wave_.prompt_tokens, there.sweeps_per_prompt);
    if (read_until_ < sweep_) reading_.push_back({sweep_, 0.0});
    read_until_ = std::max(sweep_, read_until_) + reads;
    reading_.push_back({read_until_, tokens / reads});
    // Of those that it stands for the first begins when it has been read, and so do all.
    const double behind = read_until_ - reads * (1 - 1 / wave_.each) / 2;
    const double begins = std::max(behind, sweep_ + std::max(1.0, reads / wave_.each));
    return begins + there.sweeps_leaving;
}

// Sweeps until a request ends or has read its prompt, or one may begin a block.
double WaveJob::sweeps_until_event() const {
    const double now = sweep_;
    double sweeps = INFINITY;
    for (const Row& row : rows_) {
        const double until =
            (row.begins > now ? row.begins - now : 0.0) + (row.end - row.tokens) * row.pace;
        if (until < sweeps) sweeps = until;
    }
    if (read_until_ > now) sweeps = std::min(sweeps, std::ceil(read_until_ - now));
    return std::max(1.0, std::min(sweeps, static_cast<double>(wave_.block_size)));
}

// Gives rows their next blocks, in order; what is short is taken from those behind.
void WaveJob::grow(double sweeps) {
    const std::size_t held = rows_.size();
    const auto block_size = static_cast<double>(wave_.block_size);
    std::size_t place = 0;
    while (place < rows_.size()) {
        Row& row = rows_[place];
        row.gain = row.gained(sweep_, sweeps);
        if (row.tokens + row.gain <= static_cast<double>(row.blocks) * block_size) {
            ++place;
            continue;
        }
        const std::int64_t need = blocks(row.tokens + row.gain) - row.blocks;
        while (need > free_[row.home] && preempted(row.home, place)) {
        }
        if (need > free_[row.home]) {
            preempt(place);
            continue;
        }
        free_[row.home] -= need;
        row.blocks += need;
        ++place;
    }
    if (rows_.size() < held) {
        std::sort(waiting_.begin(), waiting_.end(),
                  [](const Waiting& a, const Waiting& b) { return a.number > b.number; });
    }
}

// Takes the memory of the last row there; false if there is none behind that place.
bool WaveJob::preempted(int home, std::size_t behind) {
    for (std::size_t place = rows_.size() - 1; place > behind; --place) {
        if (rows_[place].home == home) {
            preempt(place);
            return true;
        }
    }
    return false;
}

void WaveJob::preempt(std::size_t place) {
    const Row row = rows_[place];
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(place));
    leave(row);
    waiting_.push_back({row.number, row.tokens, row.end});
}

void WaveJob::leave(const Row& row) {
    free_[row.home] += row.blocks;
    --there_[row.home];
}

// Seconds of so many sweeps, with the rows as they are half-way.
double WaveJob::advance(double sweeps) {
    std::array<double, 2> attended{};
    const double now = sweep_, then = sweep_ + sweeps;
    std::size_t kept = 0;
    first_.clear();
    last_.clear();
    for (std::size_t place = 0; place < rows_.size(); ++place) {
        Row& row = rows_[place];
        if (row.begins <= now) {
            attended[row.home] += row.tokens + row.gain / 2;
        } else if (row.begins < then) {
            const double share = (then - row.begins) / sweeps;
            attended[row.home] += share * (row.tokens + row.gain / 2);
        }
        row.tokens += row.gain;
        // Sums may round to just below the end.
        const bool ends = row.end - row.tokens <= kRounding && row.begins <= then;
        if (first_s_[row.number] < 0 && (given(row) <= then || ends)) first_.push_back(row);
        if (!ends) {
            if (kept != place) rows_[kept] = row;
            ++kept;
        } else {
            leave(row);
            last_.push_back(row);
        }
    }
    rows_.resize(kept);
    const double read = std::min(std::max(0.0, read_until_ - now), sweeps) / sweeps;
    const double prompts = read_tokens(then) / sweeps;
    sweep_ = then;
    const double sweep_s = sweep_with_prompts_s(attended, read, prompts);
    if (!first_.empty()) note_first(sweeps, sweep_s, attended, read);
    note_last(sweeps, sweep_s);
    return sweeps * sweep_s;
}

// Sweeps after which its first token is there, though it may not have left yet.
double WaveJob::given(const Row& row) const {
    return std::ceil(row.begins - wave_.homes[row.home].sweeps_leaving);
}

// When first tokens are given in so many sweeps, the first of which read prompts.
void WaveJob::note_first(double sweeps, double sweep_s, const std::array<double, 2>& attended,
                         double read) {
    const double now = sweep_ - sweeps;
    double reading_s = sweep_s, decode_s = sweep_s;
    if (read > 0 && read < 1) {
        decode_s = sweep_s_(wave_.each * attended[0], wave_.each * attended[1], 0.0);
        reading_s = (sweep_s - (1 - read) * decode_s) / read;
    }
    for (const Row& row : first_) {
        const double passed = std::min(given(row) - now, sweeps);
        const double reading = std::min(passed, read * sweeps);
        const double into_s = reading * reading_s + (passed - reading) * decode_s;
        first_s_[row.number] = time_s_ + into_s;
    }
}

// Of requests that end within so many sweeps: as many whole ones after the first token.
void WaveJob::note_last(double sweeps, double sweep_s) {
    const double then_s = time_s_ + sweeps * sweep_s;
    for (const Row& row : last_) {
        const double whole = given(row) + wave_.homes[row.home].sweeps_leaving;
        const double early = std::min(sweep_ - row.begins, sweeps) - row.gain * row.pace;
        const double ends_s = then_s + (whole - row.begins - early) * sweep_s;
        decoding_s_[row.number] = std::max(0.0, ends_s - first_s_[row.number]);
        home_of_[row.number] = row.home;
    }
}

// Of prompts, from now on until some sweep.
double WaveJob::read_tokens(double then) {
    double tokens = 0.0, begin = sweep_;
    for (const Reading& reading : reading_) {
        const double until = std::min(reading.until, then);
        tokens += reading.per_sweep * (until - begin);
        begin = until;
    }
    while (!reading_.empty() && reading_.front().until <= then) reading_.pop_front();
    return tokens;
}

// Seconds of a sweep in the mean, where prompts are read for a share of the time, and so many
// tokens of them in the mean.
double WaveJob::sweep_with_prompts_s(const std::array<double, 2>& attended, double read,
                                     double prompts) const {
    const double each = wave_.each;
    const double device = each * attended[0], host = each * attended[1];
    if (read == 0) return sweep_s_(device, host, 0.0);
    // Those that a request stands for come one by one where a sweep has room for more: each is in
    // another sweep, and the first tokens of prompts cost the most.
    double apart = std::min(each, 1 / read);
    double tokens = each * prompts / apart;
    // A sweep that reads any reads a prompt, or as much of one as it has room for.
    const double least = std::min(prompt_tokens_, each * wave_.prompt_tokens);
    if (tokens < least) {
        apart = apart * tokens / least;
        tokens = least;
    }
    const double whole_s = sweep_s_(device, host, tokens);
    if (apart == 1) return whole_s;
    const double without_s = sweep_s_(device, host, 0.0);
    return without_s + apart * (whole_s - without_s);
}

}  // namespace tandem::planner
