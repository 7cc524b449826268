// What is made of drawn steps: transitions of one or several steps, single or in sequences, with hindsight goals, extra
// fields, and the steps of each window where the caller computes with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "bytes.hpp"
#include "choice.hpp"
#include "episodes.hpp"
#include "timeline.hpp"
#include "transition.hpp"

namespace relive {

enum class GoalStrategy { future, final, episode, random };

// Hindsight (Andrychowicz et al. 2017, arXiv 1707.01495): observation leaf `desired` of some rows is replaced by leaf
// `achieved` of the successor of another step of the episode.
struct GoalRule {
    GoalStrategy strategy = GoalStrategy::future;
    std::size_t sampled = 4;  // of sampled + 1 rows, so many get another goal
    std::size_t achieved = 0;
    std::size_t desired = 0;
};

// A part of a step.
enum class Part { observation, action, successor, extra, reward, done };
struct PartOf {
    Part part;
    std::size_t leaf = 0;
};

struct View {
    std::int64_t n_steps = 1;
    double gamma = 1.0;
    std::optional<std::size_t> own_gamma;  // the extra leaf, float32 or float64, that holds the discount of each step
    std::int64_t time = 0;                 // steps of a sequence; 0 for single transitions
    StartRule rule;
    std::optional<GoalRule> goals;
    std::vector<PartOf> windows;  // given for every step of the window too, (n_steps, ...)
    bool names_steps = true;      // handles are given
    std::int64_t burn_in = 0;     // of sequences: so many first steps are marked

    bool has_discounts() const noexcept { return n_steps > 1 || own_gamma.has_value(); }
};

// A row of a batch, or a step of a sequence in it.
struct Place {
    Drawn step;
    bool is_valid;
    bool is_first;
};

// The pointers of a batch of `places`: as TransitionBatch, and what other views add.
struct ViewBatch {
    TransitionBatch base;
    std::byte* discount = nullptr;  // float32
    std::vector<std::byte*> extra;
    std::vector<std::byte*> windows;
    std::byte* lengths = nullptr;  // int64: steps of each window
    std::byte* is_valid = nullptr;
    std::byte* is_first = nullptr;
    std::byte* in_burn_in = nullptr;
};

class ViewGather {
  public:
    ViewGather(const Timeline& timeline, const View& view) : timeline_(timeline), view_(view) {
        for (std::int64_t i = 0; i <= view.n_steps; ++i)
            powers_.push_back(std::pow(view.gamma, static_cast<double>(i)));
        sums_.resize(timeline.layout().reward_width());
    }

    static std::size_t bytes_of(const Layout& layout, const PartOf& which) {
        switch (which.part) {
            case Part::observation:
            case Part::successor:
                return layout.observation.at(which.leaf).bytes;
            case Part::action:
                return layout.action.at(which.leaf).bytes;
            case Part::extra:
                return layout.extra.at(which.leaf).bytes;
            case Part::reward:
                return layout.reward.bytes;
            default:
                return sizeof(float);
        }
    }

    void gather(const std::vector<Place>& places, const ViewBatch& out) {
        const std::size_t size = places.size();
        for (std::size_t i = 0; i < std::min(size, ahead_of_records); ++i) prefetch_window(places[i]);
        for (std::size_t i = 0; i < size; ++i) {
            if (i + ahead_of_records < size) prefetch_window(places[i + ahead_of_records]);
            if (view_.n_steps == 1 && i + ahead_of_finals < size) {
                const Drawn& next = places[i + ahead_of_finals].step;
                detail::prefetch_final(timeline_, {next.lane, next.row});
            }
            if (places[i].is_valid) {
                write(places[i].step, i, out);
            } else {
                write_nothing(i, out);
            }
        }
        if (!out.is_valid) return;
        for (std::size_t i = 0; i < size; ++i) {
            store(out.is_valid + i, static_cast<std::uint8_t>(places[i].is_valid));
            store(out.is_first + i, static_cast<std::uint8_t>(places[i].is_first));
        }
        const auto time = static_cast<std::size_t>(view_.time);
        const auto burn_in = static_cast<std::size_t>(std::min(view_.burn_in, view_.time));
        std::memset(out.in_burn_in, 0, size);
        for (std::size_t i = 0; i < size; i += time) std::memcpy(out.in_burn_in + i, out.is_valid + i, burn_in);
    }

    // Asks for the goal of a step ahead of `relabel`.
#if defined(__GNUC__) || defined(__clang__)
    [[gnu::always_inline]]
#endif
    inline void prefetch_goal(const Drawn& of) const noexcept {
        prefetch(timeline_.layout().record(of.lane, of.row), timeline_.layout().reach);
    }

    // The achieved goal after step `of` becomes the desired one of row i.
    void relabel(std::size_t i, const Drawn& of, const ViewBatch& out) const noexcept {
        const std::size_t bytes = timeline_.layout().observation[view_.goals->desired].bytes;
        const std::byte* const goal = timeline_.successor(view_.goals->achieved, of.lane, of.row);
        std::memcpy(out.base.observation[view_.goals->desired] + i * bytes, goal, bytes);
        std::memcpy(out.base.successor[view_.goals->desired] + i * bytes, goal, bytes);
    }

  private:
    static constexpr std::size_t prefetched_window = 1024;

#if defined(__GNUC__) || defined(__clang__)
    [[gnu::always_inline]]  // see bytes.hpp
#endif
    inline void prefetch_window(const Place& place) const noexcept {
        const Layout& layout = timeline_.layout();
        const auto steps = static_cast<std::size_t>(view_.n_steps);
        prefetch(layout.record(place.step.lane, place.step.row),
                 std::min(layout.reach + (steps - 1) * layout.record_bytes, prefetched_window));
        for (const Leaf& leaf : layout.observation) {
            if (!leaf.packed) prefetch(layout.at(leaf, place.step.lane, place.step.row), prefetched_head);
        }
    }

    void write(const Drawn& step, std::size_t i, const ViewBatch& out) {
        const Layout& layout = timeline_.layout();
        const std::int64_t head = timeline_.lanes()[step.lane].head;
        std::size_t last = step.row;
        std::int64_t length = 1;
        const std::byte* record = layout.record(step.lane, step.row);
        const std::byte* const first_record = record;
        const std::size_t width = sums_.size();
        double product = view_.own_gamma ? own_gamma(step.lane, step.row) : 1.0;
        if (view_.n_steps > 1) {
            for (std::size_t k = 0; k < width; ++k)
                sums_[k] = load<float>(record + layout.reward.offset + k * sizeof(float));
            while (length < view_.n_steps && step.number + length < head && !timeline_.is_end(step.lane, last)) {
                last = timeline_.next(last);
                record = layout.record(step.lane, last);
                const double power = view_.own_gamma ? product : powers_[static_cast<std::size_t>(length)];
                for (std::size_t k = 0; k < width; ++k)
                    sums_[k] +=
                        power * static_cast<double>(load<float>(record + layout.reward.offset + k * sizeof(float)));
                if (view_.own_gamma) product *= own_gamma(step.lane, last);
                ++length;
            }
            for (std::size_t k = 0; k < width; ++k)
                store(out.base.reward + i * layout.reward.bytes + k * sizeof(float), static_cast<float>(sums_[k]));
        } else {
            copy_bytes(out.base.reward + i * layout.reward.bytes, record + layout.reward.offset, layout.reward.bytes);
        }
        for (std::size_t k = 0; k < layout.observation.size(); ++k) {
            const Leaf& leaf = layout.observation[k];
            const std::byte* const from =
                leaf.packed ? first_record + leaf.offset : layout.at(leaf, step.lane, step.row);
            copy_bytes(out.base.observation[k] + i * leaf.bytes, from, leaf.bytes);
            copy_bytes(out.base.successor[k] + i * leaf.bytes, timeline_.successor(k, step.lane, last), leaf.bytes);
        }
        copy_leaves(layout.action, out.base.action, step, i);
        copy_leaves(layout.extra, out.extra, step, i);
        store(out.base.done + i * sizeof(float), done_of(record));
        if (out.discount && view_.own_gamma)
            store(out.discount + i * sizeof(float), static_cast<float>(product));
        else if (out.discount)
            store(out.discount + i * sizeof(float), static_cast<float>(powers_[static_cast<std::size_t>(length)]));
        if (out.lengths) store(out.lengths + i * sizeof(std::int64_t), length);
        for (std::size_t w = 0; w < view_.windows.size(); ++w)
            write_window(view_.windows[w], step, length, i, out.windows[w]);
    }

    void copy_leaves(const std::vector<Leaf>& leaves, const std::vector<std::byte*>& to, const Drawn& step,
                     std::size_t i) const noexcept {
        for (std::size_t k = 0; k < leaves.size(); ++k) {
            copy_bytes(to[k] + i * leaves[k].bytes, timeline_.layout().at(leaves[k], step.lane, step.row),
                       leaves[k].bytes);
        }
    }

    double own_gamma(std::size_t lane, std::size_t row) const noexcept {
        const Leaf& leaf = timeline_.layout().extra[*view_.own_gamma];
        const std::byte* const from = timeline_.layout().at(leaf, lane, row);
        return leaf.bytes == sizeof(float) ? static_cast<double>(load<float>(from)) : load<double>(from);
    }

    float done_of(const std::byte* record) const noexcept {
        const Layout& layout = timeline_.layout();
        return load<float>(record + layout.done) * (1.0F - load<float>(record + layout.timeout));
    }

    void write_window(const PartOf& which, const Drawn& step, std::int64_t length, std::size_t i,
                      std::byte* out) const {
        const Layout& layout = timeline_.layout();
        const std::size_t bytes = bytes_of(layout, which);
        const auto steps = static_cast<std::size_t>(view_.n_steps);
        const auto filled = static_cast<std::size_t>(length);
        std::byte* to = out + i * steps * bytes;
        std::size_t row = step.row;
        for (std::size_t j = 0; j < filled; ++j, row = timeline_.next(row), to += bytes) {
            const std::byte* const record = layout.record(step.lane, row);
            switch (which.part) {
                case Part::observation:
                    copy_bytes(to, layout.at(layout.observation[which.leaf], step.lane, row), bytes);
                    break;
                case Part::successor:
                    copy_bytes(to, timeline_.successor(which.leaf, step.lane, row), bytes);
                    break;
                case Part::action:
                    copy_bytes(to, layout.at(layout.action[which.leaf], step.lane, row), bytes);
                    break;
                case Part::extra:
                    copy_bytes(to, layout.at(layout.extra[which.leaf], step.lane, row), bytes);
                    break;
                case Part::reward:
                    copy_bytes(to, record + layout.reward.offset, bytes);
                    break;
                case Part::done:
                    store(to, done_of(record));
                    break;
            }
        }
        std::memset(to, 0, (steps - filled) * bytes);
    }

    // Padding is zero in every field.
    void write_nothing(std::size_t i, const ViewBatch& out) const noexcept {
        const Layout& layout = timeline_.layout();
        const auto clear = [i](std::byte* to, std::size_t bytes) { std::memset(to + i * bytes, 0, bytes); };
        for (std::size_t k = 0; k < layout.observation.size(); ++k) {
            clear(out.base.observation[k], layout.observation[k].bytes);
            clear(out.base.successor[k], layout.observation[k].bytes);
        }
        for (std::size_t k = 0; k < layout.action.size(); ++k) clear(out.base.action[k], layout.action[k].bytes);
        for (std::size_t k = 0; k < layout.extra.size(); ++k) clear(out.extra[k], layout.extra[k].bytes);
        clear(out.base.reward, layout.reward.bytes);
        clear(out.base.done, sizeof(float));
        if (out.discount) clear(out.discount, sizeof(float));
        if (out.lengths) clear(out.lengths, sizeof(std::int64_t));
        for (std::size_t w = 0; w < view_.windows.size(); ++w) {
            clear(out.windows[w], static_cast<std::size_t>(view_.n_steps) * bytes_of(layout, view_.windows[w]));
        }
    }

    const Timeline& timeline_;
    const View& view_;
    std::vector<double> powers_;
    std::vector<double> sums_;
};

// The `time` steps up to `last`, as far as they are held.
inline void expand_back(const Timeline& timeline, const Episodes& episodes, const View& view, const Drawn& last,
                        std::size_t episode, std::vector<Place>& places) {
    const std::int64_t oldest = timeline.oldest(last.lane);
    const std::int64_t begin = view.rule.crossing ? oldest : std::max(oldest, episodes.begins(last.lane)[episode]);
    const std::int64_t first = std::max(begin, last.number - view.time + 1);
    for (std::int64_t number = last.number - view.time + 1; number < first; ++number)
        places.push_back({last, false, false});
    bool is_first = first == episodes.begins(last.lane)[episodes.find(last.lane, first)];
    for (std::int64_t number = first; number <= last.number; ++number) {
        const std::size_t row = timeline.row_of(number);
        places.push_back({{last.lane, row, number}, true, is_first});
        is_first = timeline.is_end(last.lane, row);
    }
}

// The steps of sequences that begin at `starts`, or where their rule looks back end there: `time` places for each.
inline void expand(const Timeline& timeline, const Episodes& episodes, const View& view,
                   const std::vector<Drawn>& starts, std::vector<Place>& places) {
    places.clear();
    for (const Drawn& start : starts) {
        const std::size_t episode = episodes.find(start.lane, start.number);
        if (view.rule.looks_back) {
            expand_back(timeline, episodes, view, start, episode, places);
            continue;
        }
        const std::int64_t end = view.rule.crossing ? episodes.head(start.lane) : episodes.end(start.lane, episode);
        std::size_t row = start.row;
        bool is_first = start.number == episodes.begins(start.lane)[episode];
        for (std::int64_t t = 0; t < view.time; ++t) {
            const std::int64_t number = start.number + t;
            if (number >= end) {
                places.push_back({start, false, false});
                continue;
            }
            places.push_back({{start.lane, row, number}, true, is_first});
            is_first = timeline.is_end(start.lane, row);
            row = timeline.next(row);
        }
    }
}

// The step after which the new goal of a row was reached.
inline Drawn choose_goal(const Timeline& timeline, const Episodes& episodes, const Starts& starts, const GoalRule& rule,
                         const std::vector<std::int64_t>& counts_before, const Drawn& step, BitGenerator& bits) {
    if (rule.strategy == GoalStrategy::random) {
        const std::int64_t position = detail::draw_one(bits, counts_before.back());
        const std::size_t lane = detail::lane_at(counts_before, position);
        const std::int64_t number = starts.at(lane, position - counts_before[lane]);
        return {lane, timeline.row_of(number), number};
    }
    const std::size_t episode = episodes.find(step.lane, step.number);
    const std::int64_t end = episodes.end(step.lane, episode);
    const std::int64_t begin = rule.strategy == GoalStrategy::episode
                                   ? std::max(episodes.begins(step.lane)[episode], timeline.oldest(step.lane))
                                   : step.number;
    const std::int64_t number =
        rule.strategy == GoalStrategy::final ? end - 1 : begin + detail::draw_one(bits, end - begin);
    return {step.lane, timeline.row_of(number), number};
}

}  // namespace relive
