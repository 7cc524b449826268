// Which steps are drawn, where all that a rule names are alike: with replacement, or once each in an epoch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "draw.hpp"
#include "episodes.hpp"
#include "timeline.hpp"

namespace relive {

// A drawn step.
struct Drawn {
    std::size_t lane;
    std::size_t row;
    std::int64_t number;
};

enum class Choice { drawn, none_eligible, too_few_left };

namespace detail {

// The lane of each of `size` positions among counts laid end to end, and the position in it: (lane, k), in place of
// `positions`. `before` has the sums before each lane.
inline std::size_t lane_at(const std::vector<std::int64_t>& before, std::int64_t position) noexcept {
    return static_cast<std::size_t>(std::upper_bound(before.begin(), before.end(), position) - before.begin()) - 1;
}

template <class Count>
std::vector<std::int64_t> sums_before(std::size_t lanes, const Count& count) {
    std::vector<std::int64_t> before(lanes + 1, 0);
    for (std::size_t lane = 0; lane < lanes; ++lane) before[lane + 1] = before[lane] + count(lane);
    return before;
}

inline std::int64_t draw_one(BitGenerator& bits, std::int64_t bound) noexcept {
    std::int64_t value = 0;
    draw_below(bits, static_cast<std::uint64_t>(bound), 1, &value);
    return value;
}

}  // namespace detail

// Uniform over the steps of a rule, with replacement.
inline Choice draw_starts(const Timeline& timeline, const Starts& starts, BitGenerator& bits, std::size_t size,
                          std::vector<Drawn>& out) {
    const std::size_t lanes = timeline.lanes().size();
    const auto before = detail::sums_before(lanes, [&](std::size_t lane) { return starts.count(lane); });
    if (before.back() == 0) return Choice::none_eligible;
    std::vector<std::int64_t> positions(size);
    draw_below(bits, static_cast<std::uint64_t>(before.back()), size, positions.data());
    out.clear();
    for (const std::int64_t position : positions) {
        const std::size_t lane = detail::lane_at(before, position);
        const std::int64_t number = starts.at(lane, position - before[lane]);
        out.push_back({lane, timeline.row_held(lane, number), number});
    }
    return Choice::drawn;
}

// First an episode that has a start, then a start of it.
inline Choice draw_by_episode(const Timeline& timeline, const Starts& starts, BitGenerator& bits, std::size_t size,
                              std::vector<Drawn>& out) {
    const std::size_t lanes = timeline.lanes().size();
    const auto before = detail::sums_before(lanes, [&](std::size_t lane) { return starts.episode_count(lane); });
    if (before.back() == 0) return Choice::none_eligible;
    std::vector<std::int64_t> positions(size);
    draw_below(bits, static_cast<std::uint64_t>(before.back()), size, positions.data());
    out.clear();
    for (const std::int64_t position : positions) {
        const std::size_t lane = detail::lane_at(before, position);
        const auto [first, count] = starts.episode_at(lane, position - before[lane]);
        const std::int64_t number = first + detail::draw_one(bits, count) * starts.rule().stride;
        out.push_back({lane, timeline.row_held(lane, number), number});
    }
    return Choice::drawn;
}

// Without replacement: an epoch is the steps that its rule names at its start, in random order. Those that are
// overwritten meanwhile drop out, new ones wait for the next epoch, and the last batch is a short one.
class Epochs {
  public:
    // Fewer than `size` steps at the end of an epoch; `may_begin` false draws no step of a new one.
    // `may(step)` says whether a step that the rule names can still be drawn.
    template <class May>
    Choice draw(const Timeline& timeline, const Starts& starts, const May& may, BitGenerator& bits, std::size_t size,
                bool may_begin, std::vector<Drawn>& out) {
        Epoch& epoch = epoch_of(starts.rule());
        out.clear();
        if (!epoch.rest.empty() && may_begin && size > static_cast<std::size_t>(epoch.began_with))
            return Choice::too_few_left;
        take(timeline, starts, may, epoch, size, out);
        if (!out.empty() || size == 0 || !may_begin) return Choice::drawn;
        const std::size_t held = begin(timeline, starts, may, bits, epoch);
        if (held == 0) return Choice::none_eligible;
        if (held < size) {
            epoch.rest.clear();
            return Choice::too_few_left;
        }
        epoch.began_with = static_cast<std::int64_t>(held);
        take(timeline, starts, may, epoch, size, out);
        return Choice::drawn;
    }

    void clear() noexcept { epochs_.clear(); }

    // Handles of steps that the running epochs still have, the next one last; for copies.
    struct Epoch {
        StartRule rule;
        std::int64_t began_with = 0;
        std::vector<std::int64_t> rest;
    };
    const std::list<Epoch>& epochs() const noexcept { return epochs_; }
    void restore(Epoch epoch) { epochs_.push_back(std::move(epoch)); }

  private:
    Epoch& epoch_of(const StartRule& rule) {
        for (Epoch& epoch : epochs_) {
            if (epoch.rule == rule) return epoch;
        }
        epochs_.push_back({rule, 0, {}});
        return epochs_.back();
    }

    template <class May>
    static void take(const Timeline& timeline, const Starts& starts, const May& may, Epoch& epoch, std::size_t size,
                     std::vector<Drawn>& out) {
        const auto lanes = static_cast<std::int64_t>(timeline.lanes().size());
        while (out.size() < size && !epoch.rest.empty()) {
            const std::int64_t handle = epoch.rest.back();
            epoch.rest.pop_back();
            const auto lane = static_cast<std::size_t>(handle % lanes);
            const std::int64_t number = handle / lanes;
            const Drawn step{lane, timeline.row_of(number), number};
            if (timeline.holds(lane, number) && starts.is_start(lane, number) && may(step)) out.push_back(step);
        }
    }

    template <class May>
    static std::size_t begin(const Timeline& timeline, const Starts& starts, const May& may, BitGenerator& bits,
                             Epoch& epoch) {
        const auto lanes = static_cast<std::int64_t>(timeline.lanes().size());
        epoch.rest.clear();
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const auto l = static_cast<std::size_t>(lane);
            const std::int64_t count = starts.count(l);
            for (std::int64_t k = 0; k < count; ++k) {
                const std::int64_t number = starts.at(l, k);
                if (may(Drawn{l, timeline.row_of(number), number})) epoch.rest.push_back(number * lanes + lane);
            }
        }
        for (std::size_t i = epoch.rest.size(); i > 1; --i) {
            const auto j = static_cast<std::size_t>(detail::draw_one(bits, static_cast<std::int64_t>(i)));
            std::swap(epoch.rest[i - 1], epoch.rest[j]);
        }
        return epoch.rest.size();
    }

    std::list<Epoch> epochs_;
};

}  // namespace relive
