// A sweep's promises that Python cannot break: work that throws, and counters that go round.
#include "sweep.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"

namespace {

using tandem::Counter;
using tandem::Job;
using tandem::Pool;
using tandem::SignalPoint;
using tandem::Sweep;
using tandem::SweepLayer;
using Clock = std::chrono::steady_clock;

constexpr auto kForever = Clock::time_point::max();
constexpr std::uint32_t kBase = 0xFFFFFFFEu;  // the second layer's value is 0

class Told final : public Job {
  public:
    Told(std::vector<std::string>& told, std::string name, bool fails)
        : Job(1), told_(told), name_(std::move(name)), fails_(fails) {}

  private:
    void run_part(int) override {
        told_.push_back(name_);
        if (fails_) throw std::runtime_error(name_ + " failed");
    }

    std::vector<std::string>& told_;
    const std::string name_;
    const bool fails_;
};

std::vector<SweepLayer> layers_of(std::vector<std::string>& told, int count,
                                  const std::string& failing = "") {
    const auto job = [&](const std::string& name) {
        return std::make_unique<Told>(told, name, name == failing);
    };
    std::vector<SweepLayer> layers;
    for (int i = 0; i < count; ++i)
        layers.push_back({job("put " + std::to_string(i)), job("attend " + std::to_string(i))});
    return layers;
}

std::string message_of(Sweep& sweep) {
    try {
        sweep.wait(kForever);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

void layers_begin_when_their_rows_have_come(Pool& pool) {
    std::vector<std::string> told;
    Counter down{kBase}, up{kBase}, gate{0}, then{0};
    Sweep sweep(pool, layers_of(told, 3));
    const SignalPoint after[] = {{&gate, 1}};
    sweep.submit({down, up, kBase}, after, {&then, 1});
    CHECK(tandem::raise(down, kBase + 1));
    CHECK(!sweep.wait(Clock::now() + std::chrono::milliseconds(2)));
    CHECK(told.empty());
    CHECK(tandem::raise(gate, 1));
    for (std::uint32_t layer = 1; layer <= 3; ++layer) {
        CHECK(tandem::wait_for(up, kBase + layer, kForever));
        CHECK(up == kBase + layer && told.size() == 2 * layer);
        if (layer < 3) CHECK(then == 0 && tandem::raise(down, kBase + layer + 1));
    }
    CHECK(sweep.wait(kForever));
    CHECK(then == 1);
    const std::vector<std::string> order{"put 0",    "attend 0", "put 1",
                                         "attend 1", "put 2",    "attend 2"};
    CHECK(told == order);
    std::int64_t before = 1;
    CHECK(sweep.spans_ns().size() == 6);
    for (const auto& [start, end] : sweep.spans_ns()) {
        CHECK(before <= start && start <= end);
        before = end;
    }
}

void nothing_is_put_where_no_keys_come(Pool& pool) {
    std::vector<std::string> told;
    Counter down{2}, up{0};
    std::vector<SweepLayer> layers = layers_of(told, 2);
    for (SweepLayer& layer : layers) layer.append.reset();
    Sweep sweep(pool, std::move(layers));
    sweep.submit({down, up, 0}, {}, {});
    CHECK(sweep.wait(kForever));
    CHECK(up == 2 && sweep.spans_ns().size() == 2);
    CHECK((told == std::vector<std::string>{"attend 0", "attend 1"}));
}

// Whoever waits for a counter shall not wait for ever.
void what_fails_is_told_and_raises_all_counters(Pool& pool) {
    for (const char* failing : {"put 1", "attend 1"}) {
        std::vector<std::string> told;
        Counter down{3}, up{0}, then{0};
        Sweep sweep(pool, layers_of(told, 3, failing));
        sweep.submit({down, up, 0}, {}, {&then, 1});
        CHECK(message_of(sweep) == std::string(failing) + " failed");
        CHECK(tandem::wait_for(then, 1, kForever));
        CHECK(up == 3);
    }
}

void what_has_not_begun_is_taken_back(Pool& pool) {
    std::vector<std::string> told;
    Counter down{1}, up{0}, then{0};
    Sweep sweep(pool, layers_of(told, 3));
    sweep.submit({down, up, 0}, {}, {&then, 1});
    CHECK(tandem::wait_for(up, 1, kForever));
    sweep.cancel();
    CHECK(message_of(sweep) == "cancelled before it began");
    CHECK(told.size() == 2 && up == 1 && then == 0);
}

bool is_refused(Sweep& sweep, const tandem::SweepLink& link,
                const std::vector<SignalPoint>& after) {
    try {
        sweep.submit(link, after, {});
    } catch (const std::invalid_argument&) {
        return true;
    }
    return false;
}

void it_is_submitted_once_and_not_behind_too_much(Pool& pool) {
    std::vector<std::string> told;
    Counter down{1}, up{0};
    Sweep sweep(pool, layers_of(told, 1));
    CHECK(is_refused(sweep, {down, up, 0}, std::vector<SignalPoint>(tandem::Conditions::kMost)));
    CHECK(!is_refused(sweep, {down, up, 0}, {}));
    CHECK(is_refused(sweep, {down, up, 0}, {}));
    CHECK(sweep.wait(kForever));
    CHECK(told.size() == 2);
}

}  // namespace

int main() {
    for (int threads : {1, 3}) {
        Pool pool({threads, false, std::chrono::microseconds(50)});
        layers_begin_when_their_rows_have_come(pool);
        nothing_is_put_where_no_keys_come(pool);
        what_fails_is_told_and_raises_all_counters(pool);
        what_has_not_begun_is_taken_back(pool);
        it_is_submitted_once_and_not_behind_too_much(pool);
    }
}
