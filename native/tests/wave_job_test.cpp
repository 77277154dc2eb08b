// Jobs of the planner's waves: a few by hand, and random ones to their ends, within their memory.
// That they take as long as Python's is for Python's tests.
#include "wave_job.hpp"

#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "sweep_times.hpp"

namespace {

using namespace tandem::planner;

double a_second(double, double, double) { return 1.0; }

void places_are_taken_in_turns() {
    // 10 tokens are read in a sweep; of 31 that are made the first comes with them.
    const Wave wave{{Home{1000, 4, 4}, Home{}}, 4, 10, 100.0, 1.0};
    const SweepS sweep_s = a_second;
    WaveJob job(wave, std::vector<RequestShape>(5, {10, 31}), sweep_s);
    const double job_s = job.run();
    CHECK(job_s > 60 && job_s < 64);
    CHECK(job.begun_s()[3] == 0 && job.begun_s()[4] > 29);
}

void random_jobs_end() {
    std::mt19937 random(0);
    const auto draw = [&](int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(random);
    };
    const SweepS sweep_s =
        SweepTimes(0.1, 1e-3, 1e-2, {{1.0, 0.1}, {64.0, 0.3}}, 0.7, ExpertTimes{0.75, 0.2, 40.0});
    for (int number = 0; number < 300; ++number) {
        std::array<Home, 2> homes;
        for (Home& home : homes) {
            home = {draw(1, 60),      draw(1, 20),      draw(0, 3),
                    draw(1, 2) * 1.7, draw(0, 2) * 1.0, draw(0, 1) * 3.0};
        }
        const Wave wave{homes, draw(1, 20), draw(1, 16), 64.0, draw(1, 2) * 1.0};
        std::vector<RequestShape> shapes;
        for (int request = draw(1, 40); request > 0; --request) {
            shapes.push_back({draw(1, 200), draw(1, 90)});
        }
        CHECK(WaveJob(wave, shapes, sweep_s).run() > 0);
    }
}

void a_job_without_room_is_refused() {
    const Wave wave{{Home{9, 0, 0}, Home{}}, 1, 10, 100.0, 1.0};
    const SweepS sweep_s = a_second;
    bool refused = false;
    try {
        WaveJob(wave, {{1, 1}}, sweep_s);
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
}

}  // namespace

int main() {
    places_are_taken_in_turns();
    random_jobs_end();
    a_job_without_room_is_refused();
    std::puts("jobs: places taken in turns, random ones to their ends, no room refused");
}
